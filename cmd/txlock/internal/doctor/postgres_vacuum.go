package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
)

// lookAtVacuum looks for what keeps vacuum from removing dead rows of this database.
func (p *postgresServer) lookAtVacuum(ctx context.Context) ([]Finding, error) {
	findings, hidden, err := p.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context) ([]Finding, error){p.prepared, p.abandonedSlots} {
		found, err := look(ctx)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	if len(findings) > 0 {
		return findings, nil
	}
	found := fmt.Sprintf("nothing that %s may see has held back vacuum for %v", p.role, p.long)
	if hidden > 0 {
		found += fmt.Sprintf("; since when, it may not see of %d sessions of other roles", hidden)
	}
	return one(Finding{Severity: OK, Found: found}), nil
}

// held says what comes of a row version that cannot be removed.
const held = "vacuum removes no row of this database that died since then, and tables grow"

// snapshots looks for sessions that are in an old transaction. hidden is how many sessions do not
// show to this role when they began theirs.
func (p *postgresServer) snapshots(ctx context.Context) (findings []Finding, hidden int, err error) {
	const query = `SELECT pid::text, coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, ''),
		extract(epoch FROM clock_timestamp() - xact_start)::float8
		FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
		AND datname = current_database() AND pid <> pg_backend_pid()
		AND coalesce(backend_type, 'client backend') = 'client backend' ORDER BY xact_start, pid`
	rows, err := p.conn.Query(ctx, query)
	if err != nil {
		return nil, 0, err
	}
	var names map[string]string // is asked for when there is a session to name
	var pid, role, application, state string
	var seconds *float64
	var old []session
	_, err = pgx.ForEachRow(rows, []any{&pid, &role, &application, &state, &seconds}, func() error {
		switch {
		case seconds == nil:
			hidden++
		case time.Duration(*seconds*float64(time.Second)) >= p.long:
			text := fmt.Sprintf("session %s of role %s%s, %s,", pid, role, named(application), state)
			old = append(old, session{pid, text, time.Duration(*seconds * float64(time.Second))})
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if len(old) > 0 {
		names = p.ours(ctx)
	}
	for _, s := range old {
		findings = append(findings, s.holdsBack("vacuum", held+"; and CREATE INDEX CONCURRENTLY waits for a session "+
			"that has a snapshot", names, "SELECT pg_terminate_backend("+s.id+")"))
	}
	return findings, hidden, nil
}

func named(application string) string {
	application, _, _ = strings.Cut(application, "#")
	if application = strings.TrimSpace(application); application == "" {
		return ""
	}
	return fmt.Sprintf(" (%.40q)", application)
}

// ours are the sessions of txlock, with what they lock. It is empty if Inspect does not work here:
// other findings say why.
func (p *postgresServer) ours(ctx context.Context) map[string]string {
	config := p.config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil
	}
	defer pool.Close()
	holdings, err := txlock.New(postgres.New(pool), txlock.WithTable(p.table)).Inspect(ctx)
	if err != nil {
		return nil
	}
	return locksOf(holdings)
}

// prepared looks for prepared transactions, which no session of theirs keeps alive any more.
func (p *postgresServer) prepared(ctx context.Context) (findings []Finding, err error) {
	const query = `SELECT quote_literal(gid), owner::text, extract(epoch FROM clock_timestamp() - prepared)::float8
		FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared`
	rows, err := p.conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	var gid, owner string
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&gid, &owner, &seconds}, func() error {
		if lasted := time.Duration(seconds * float64(time.Second)); lasted >= p.long {
			findings = append(findings, Finding{
				Check: "prepared-transactions", Severity: Note,
				Found: fmt.Sprintf("transaction %s of role %s was prepared %v ago", gid, owner,
					lasted.Round(time.Second)),
				Why: held + ". It also keeps its row locks, a LockTx among them: they end with no session, only with " +
					"the transaction",
				Fix: statements("COMMIT PREPARED "+gid, "ROLLBACK PREPARED "+gid).only("whichever is right:"),
			})
		}
		return nil
	})
	return findings, err
}

// abandonedSlots looks for replication slots that nobody reads from, and that keep much.
func (p *postgresServer) abandonedSlots(ctx context.Context) (findings []Finding, err error) {
	const query = `SELECT slot_name::text, quote_literal(slot_name), greatest(age(xmin), age(catalog_xmin))
		FROM pg_replication_slots WHERE NOT active AND greatest(age(xmin), age(catalog_xmin)) >= $1`
	rows, err := p.conn.Query(ctx, query, p.far)
	if err != nil {
		return nil, err
	}
	var name, literal string
	var age int
	_, err = pgx.ForEachRow(rows, []any{&name, &literal, &age}, func() error {
		findings = append(findings, Finding{
			Check: "replication-slots", Severity: Note,
			Found: fmt.Sprintf("nobody reads from replication slot %s, which keeps what died in the last %d "+
				"transactions", name, age),
			Why: "vacuum removes none of it from the tables that the slot is for; no lock is harmed until the disk " +
				"is full",
			Fix: statements("SELECT pg_drop_replication_slot(" + literal + ")").only("if nobody will read from it:"),
		})
		return nil
	})
	return findings, err
}
