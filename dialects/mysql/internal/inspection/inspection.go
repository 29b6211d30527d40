// Package inspection shows who holds rows and who waits for them, as the views of MySQL and MariaDB
// have it, and ends sessions that it has shown.
package inspection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Inspector does what dialects.Inspector promises. Its methods may be called from many goroutines.
type Inspector struct {
	pool    *client.Pool
	mariadb *mariadb
}

// New returns an Inspector, and sends nothing. On MariaDB it waits for rows on connections of the
// pool's Control.
func New(pool *client.Pool) Inspector {
	return Inspector{pool, &mariadb{control: pool.Control, reader: make(chan struct{}, 1)}}
}

// views are those in which a server shows its locks.
type views interface {
	// read adds the sessions to the picture, and the locks that they hold or wait for.
	read(ctx context.Context, p *picture) error
	// in tells whether a session is still in a transaction: see identity.
	in(ctx context.Context, p *picture, session, number, begin string) (bool, error)
	// present finds a session, whose number is put behind it, until what it did is rolled back.
	present() string
	// grant gives the privilege to see all that.
	grant() string
}

// Inspect does what dialects.Inspector promises. Permits and seats are rows of tables beside the
// lock table, and are looked at as slots are.
func (i Inspector) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	err = i.pool.With(ctx, func(conn *sql.Conn) (err error) {
		states, err = i.look(ctx, conn, of)
		return err
	})
	return states, err
}

func (i Inspector) look(ctx context.Context, conn *sql.Conn, of dialects.Inspection) (
	states []dialects.RowState, err error,
) {
	at := target{column: "slot", slots: of.Table.Slots, only: of.Slots}
	switch of.Kind {
	case dialects.KindSemaphore:
		at, err = readBeside(ctx, conn, of, locktable.Permits, ", permit", "permit >= 0")
	case dialects.KindElection:
		at, err = readBeside(ctx, conn, of, locktable.Leaders, "", "part = 'seat'")
	default:
		at.table, err = sqltext.QuoteTable(of.Table.Name)
	}
	if err != nil || at.table == "" {
		return nil, err
	}
	p, err := i.open(ctx, conn)
	if err != nil {
		return nil, err
	}
	p.target, p.own = at, p.parsed(at.table, p.database)
	err = p.views.read(ctx, p)
	if err == nil && at.only == nil {
		err = p.readIndexes(ctx)
	}
	switch {
	case err != nil:
		return nil, p.explained(err)
	case of.Kind == dialects.KindSemaphore:
		return p.semaphores(), nil
	case of.Kind == dialects.KindElection:
		return p.elections(), nil
	}
	return p.states(), nil
}

// open begins a picture.
func (i Inspector) open(ctx context.Context, conn *sql.Conn) (*picture, error) {
	p := newPicture(conn)
	lines, err := p.ask(ctx, "SELECT @@version LIKE '%MariaDB%', DATABASE(), UNIX_TIMESTAMP(NOW(6)), "+
		"@@lower_case_table_names, @@performance_schema")
	if err != nil {
		return nil, err
	}
	line := lines[0]
	p.views, p.database, p.folds = mysql{}, line[1], line[3] != "0"
	switch {
	case line[0] == "1": // every release of MariaDB has its name in @@version
		p.views = i.mariadb
	case line[4] == "0":
		return nil, errors.New("the server was started with performance_schema=OFF, and then shows no locks: " +
			"set performance_schema=ON and restart it")
	}
	p.now, err = strconv.ParseFloat(line[2], 64)
	return p, err
}

// explained says which privilege the views require.
func (p *picture) explained(err error) error {
	switch server.Number(err) {
	case server.NoPrivilege, server.NoDatabasePrivilege, server.NoGlobalPrivilege:
		return fmt.Errorf("this user may not see who holds locks (%s): %w", p.views.grant(), err)
	}
	return err
}

// End does what dialects.Inspector promises.
func (i Inspector) End(ctx context.Context, party dialects.Party) error {
	return i.pool.With(ctx, func(conn *sql.Conn) error { return i.end(ctx, conn, party) })
}

func (i Inspector) end(ctx context.Context, conn *sql.Conn, party dialects.Party) error {
	p, err := i.open(ctx, conn)
	if err != nil {
		return err
	}
	number, begin, err := takeApart(party)
	if err != nil {
		return err
	}
	same, err := p.views.in(ctx, p, party.Session, number, begin)
	if err != nil {
		return p.explained(err)
	}
	if !same {
		return dialects.ErrChanged
	}
	return p.kill(ctx, party.Session)
}

// kill ends a session, and waits until the server has rolled its transaction back.
func (p *picture) kill(ctx context.Context, session string) error {
	const patience = 5 * time.Second
	_, err := p.ask(ctx, "KILL "+session)
	switch server.Number(err) {
	case server.NoSuchThread:
		return dialects.ErrChanged
	case server.KillDenied:
		return fmt.Errorf("only the session's own user, and users with CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN), "+
			"may end it; on MySQL that takes SYSTEM_USER as well when the session's user has it, as root does: %w", err)
	}
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		found, err := p.ask(ctx, p.views.present()+session)
		if err != nil || len(found) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("session %s was told to end, and had not done so after %v", session, patience)
		}
		if interrupt.ClosedWithin(ctx.Done(), 2*time.Millisecond) {
			return fmt.Errorf("session %s was told to end, and had not done so yet: %w", session, ctx.Err())
		}
	}
}

// InnoDB numbers a transaction when it first locks a row alone. One that only shares rows has the
// number 0 on MariaDB, and on MySQL the address of a structure that its session uses again for the
// next transaction. So the number does not tell which transaction a session is in: MySQL's event
// does, and on MariaDB the second in which it began.

// firstAddress is the least of the numbers that MySQL makes of addresses.
const firstAddress = 1 << 48

// identity is what tells the transaction of a lock from others of its session.
func (p *picture) identity(transaction, session string) string {
	number, err := strconv.ParseUint(transaction, 10, 64)
	if err != nil || number != 0 && number < firstAddress {
		return transaction
	}
	return transaction + " " + p.begins[session]
}

// errUnnumbered says that nobody can tell the transaction from the session's next.
var errUnnumbered = errors.New("the server does not tell the transaction of this reader from the next one of its " +
	"session: look again a second later; on MySQL that takes the consumer events_transactions_current of " +
	"performance_schema")

// takeApart is the number of a transaction and, if it has none of its own, when it began. Either is
// a number.
func takeApart(party dialects.Party) (number, begin string, err error) {
	number, begin, unnumbered := strings.Cut(party.Transaction, " ")
	if unnumbered && begin == "" {
		return "", "", errUnnumbered
	}
	for _, text := range []string{party.Session, number, "0" + begin} {
		if _, err := strconv.ParseUint(text, 10, 64); err != nil {
			return "", "", fmt.Errorf("session %q is none of Inspect's", party.Session)
		}
	}
	return number, begin, nil
}
