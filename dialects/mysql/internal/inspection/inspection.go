// Package inspection shows who holds rows and who waits for them, as the views of MySQL and MariaDB
// have it, and ends sessions that it has shown.
package inspection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Inspector implements dialects.Inspector.
type Inspector struct{ Pool *client.Pool }

// Inspect does what dialects.Inspector promises.
func (i Inspector) Inspect(ctx context.Context, of dialects.Inspection) (entries []dialects.Entry, err error) {
	err = i.look(ctx, func(p *picture) error {
		if p.mariadb && of.Brief { // who reads its views keeps others from a new picture
			return nil
		}
		p.of = of
		err := p.readTables(ctx)
		if err == nil && p.mariadb && of.Slots != nil {
			err = p.probe(ctx, i.Pool)
		} else if err == nil {
			err = p.read(ctx)
		}
		entries = p.entries
		return err
	})
	return entries, err
}

// look begins a picture, and adds to the error of taking it which privilege that requires.
func (i Inspector) look(ctx context.Context, take func(*picture) error) error {
	return i.Pool.With(ctx, func(conn client.Conn) error {
		p := &picture{conn: conn, views: mysql}
		lines, err := p.ask(ctx, "SELECT @@version LIKE '%MariaDB%', @@performance_schema, @@lower_case_table_names")
		if err != nil {
			return err
		}
		p.folds = lines[0][2] != "0"
		switch {
		case lines[0][0] == "1": // every release of MariaDB has its name in @@version
			p.views = mariadb
		case lines[0][1] == "0":
			return errors.New("the server was started with performance_schema=OFF, and then shows no locks: set " +
				"performance_schema=ON and restart it")
		}
		err = take(p)
		switch server.Number(err) {
		case server.NoPrivilege, server.NoDatabasePrivilege, server.NoGlobalPrivilege:
			err = fmt.Errorf("this user may not see who holds locks (GRANT SELECT ON performance_schema.* TO …; on "+
				"MariaDB GRANT PROCESS ON *.* TO …): %w", err)
		}
		return err
	})
}

// End does what dialects.Inspector promises.
func (i Inspector) End(ctx context.Context, party dialects.Party) error {
	if _, err := strconv.ParseUint(party.ID, 10, 64); err != nil { // a caller's, and not of a picture
		return dialects.ErrChanged
	}
	return i.look(ctx, func(p *picture) error {
		if err := p.readPeople(ctx); err != nil {
			return err
		}
		transactions, err := p.ask(ctx, "SELECT number FROM ("+p.ownersSQL+") o WHERE session = "+party.ID)
		for _, line := range transactions {
			switch s := p.people[party.ID]; {
			case s == nil || pin(line[0], s.begun) != party.Transaction:
			case strings.HasSuffix(party.Transaction, unknown):
				return errors.New("the server does not tell the transaction of this reader from the next one of its " +
					"session: look again a second later; on MySQL that takes the consumer " +
					"events_transactions_current of performance_schema")
			default:
				return p.kill(ctx, party.ID)
			}
		}
		return cmp.Or(err, dialects.ErrChanged)
	})
}

// kill ends a session, and waits until the server has rolled its transaction back.
func (p *picture) kill(ctx context.Context, session string) error {
	_, err := p.ask(ctx, "KILL "+session)
	switch server.Number(err) {
	case server.NoSuchThread:
		return dialects.ErrChanged
	case server.KillDenied:
		return fmt.Errorf("only the session's own user, and users with CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN), "+
			"may end it; on MySQL that takes SYSTEM_USER as well when the session's user has it, as root does: %w", err)
	}
	patience, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for lives := true; err == nil && lives; {
		if interrupt.ClosedWithin(patience.Done(), 5*time.Millisecond) {
			return fmt.Errorf("session %s was told to end, and had not done so yet: %w", session, patience.Err())
		}
		var people [][]string
		people, err = p.ask(ctx, p.peopleSQL)
		lives = slices.ContainsFunc(people, func(line []string) bool { return line[0] == session })
	}
	return err
}
