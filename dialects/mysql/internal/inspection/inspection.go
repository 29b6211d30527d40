// Package inspection shows who holds rows and who waits for them, as the views of MySQL and MariaDB
// have it, and ends sessions that it has shown.
package inspection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Inspector does what dialects.Inspector promises. Its methods may be called from many goroutines.
type Inspector struct {
	pool    *client.Pool
	mariadb *mariadb
}

// New returns an Inspector, and sends nothing. On MariaDB it waits for rows on connections of the
// pool's Control.
func New(pool *client.Pool) Inspector { return Inspector{pool, &mariadb{control: pool.Control}} }

// views are those in which a server shows its locks.
type views struct {
	// read adds the sessions to the picture, and the locks that they hold or wait for.
	read    func(ctx context.Context, p *picture) error
	grant   string // of the privilege to do so
	present string // finds a session, whose number is put behind it, until what it did is rolled back
}

// Inspect does what dialects.Inspector promises.
func (i Inspector) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	err = i.pool.With(ctx, func(conn *sql.Conn) error {
		p, err := i.open(ctx, conn)
		if err == nil {
			err = p.readTables(ctx, of)
		}
		if err == nil {
			err = p.read(ctx)
		}
		if err == nil {
			states, err = p.states(ctx)
		}
		return err
	})
	return states, err
}

// open begins a picture.
func (i Inspector) open(ctx context.Context, conn *sql.Conn) (*picture, error) {
	p := &picture{conn: conn, people: map[string]*person{}, views: mysql}
	lines, err := p.ask(ctx, "SELECT @@version LIKE '%MariaDB%', @@performance_schema, DATABASE(), "+
		"@@lower_case_table_names")
	if err != nil {
		return nil, err
	}
	line := lines[0]
	p.database, p.folds = line[2], line[3] != "0"
	switch {
	case line[0] == "1": // every release of MariaDB has its name in @@version
		p.views = i.mariadb.views()
	case line[1] == "0":
		err = errors.New("the server was started with performance_schema=OFF, and then shows no locks: " +
			"set performance_schema=ON and restart it")
	}
	return p, err
}

// read reads the views. Its error says which privilege they require.
func (p *picture) read(ctx context.Context) error {
	err := p.views.read(ctx, p)
	switch server.Number(err) {
	case server.NoPrivilege, server.NoDatabasePrivilege, server.NoGlobalPrivilege:
		return fmt.Errorf("this user may not see who holds locks (%s): %w", p.views.grant, err)
	}
	return err
}

// End does what dialects.Inspector promises.
func (i Inspector) End(ctx context.Context, party dialects.Party) error {
	return i.pool.With(ctx, func(conn *sql.Conn) error {
		p, err := i.open(ctx, conn)
		if err == nil {
			err = p.read(ctx)
		}
		if err != nil {
			return err
		}
		session := p.people[party.Session]
		switch {
		case session == nil || session.Transaction != party.Transaction || party.Transaction == "":
			return dialects.ErrChanged
		case strings.HasSuffix(party.Transaction, unknown):
			return errors.New("the server does not tell the transaction of this reader from the next one of its " +
				"session: look again a second later; on MySQL that takes the consumer events_transactions_current of " +
				"performance_schema")
		}
		return p.kill(ctx, party.Session)
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
	for found := [][]string{nil}; err == nil && len(found) > 0; {
		if interrupt.ClosedWithin(patience.Done(), 2*time.Millisecond) {
			return fmt.Errorf("session %s was told to end, and had not done so yet: %w", session, patience.Err())
		}
		found, err = p.ask(ctx, p.views.present+session)
	}
	return err
}
