package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// held says what comes of a row version that cannot be removed.
const held = "vacuum removes no row of this database that died since then, and tables grow"

// vacuum looks for what keeps vacuum from removing dead rows of this database: sessions in an old
// transaction, prepared transactions, and replication slots that nobody reads from.
func (p *postgresServer) vacuum(ctx context.Context, r report) (fine string, err error) {
	fine = fmt.Sprintf("nothing that %s may see has held back vacuum for %v", p.role, p.long)
	hidden, err := p.snapshots(ctx, r)
	if hidden > 0 { // they do not show to this role when they began
		fine += fmt.Sprintf("; since when, it may not see of %d sessions of other roles", hidden)
	}
	if err != nil {
		return "", err
	}
	var name, owner string
	var seconds float64
	rows, _ := p.conn.Query(ctx, `SELECT quote_literal(gid), owner::text,
		extract(epoch FROM clock_timestamp() - prepared)::float8
		FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared`)
	_, err = pgx.ForEachRow(rows, []any{&name, &owner, &seconds}, func() error {
		if lasted := period(seconds); lasted >= p.long {
			r.named("prepared-transactions").note(
				fmt.Sprintf("transaction %s of role %s was prepared %v ago", name, owner, lasted.Round(time.Second)),
				held+". It also keeps its row locks, a LockTx among them: they end with no session, only with the "+
					"transaction",
				statements("COMMIT PREPARED "+name, "ROLLBACK PREPARED "+name).only("whichever is right:"))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	var literal string
	var age int
	rows, _ = p.conn.Query(ctx, `SELECT slot_name::text, quote_literal(slot_name),
		greatest(age(xmin), age(catalog_xmin))
		FROM pg_replication_slots WHERE NOT active AND greatest(age(xmin), age(catalog_xmin)) >= $1`, p.far)
	_, err = pgx.ForEachRow(rows, []any{&name, &literal, &age}, func() error {
		r.named("replication-slots").note(fmt.Sprintf(
			"nobody reads from replication slot %s, which keeps what died in the last %d transactions", name, age),
			"vacuum removes none of it from the tables that the slot is for; no lock is harmed until the disk is full",
			statements("SELECT pg_drop_replication_slot("+literal+")").only("if nobody will read from it:"))
		return nil
	})
	return fine, err
}

func period(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// snapshots looks for sessions that are in an old transaction. hidden is how many sessions do not
// show to this role when they began theirs.
func (p *postgresServer) snapshots(ctx context.Context, r report) (hidden int, err error) {
	rows, _ := p.conn.Query(ctx, `SELECT pid::text, coalesce(usename, ''), coalesce(application_name, ''),
		coalesce(state, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8
		FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
		AND datname = current_database() AND pid <> pg_backend_pid()
		AND coalesce(backend_type, 'client backend') = 'client backend' ORDER BY xact_start, pid`)
	var pid, role, application, state string
	var seconds *float64
	var old []session
	_, err = pgx.ForEachRow(rows, []any{&pid, &role, &application, &state, &seconds}, func() error {
		if seconds == nil {
			hidden++
		} else if aged := period(*seconds); aged >= p.long {
			application, _, _ = strings.Cut(application, "#")
			if application = strings.TrimSpace(application); application != "" {
				application = fmt.Sprintf(" (%.40q)", application)
			}
			old = append(old, session{pid, fmt.Sprintf("session %s of role %s%s, %s,",
				pid, role, application, state), aged})
		}
		return nil
	})
	r.heldBack(old, "vacuum", held+"; and CREATE INDEX CONCURRENTLY waits for a session that has a snapshot",
		"SELECT pg_terminate_backend(%s)", func() ([]txlock.Holding, error) {
			locks, done, err := p.locks(ctx)
			if err != nil {
				return nil, err
			}
			defer done()
			return locks.Inspect(ctx)
		})
	return hidden, err
}

// otherRoles looks for the settings of other roles that may lock, and that end a lock or a wait:
// programs often have another role than who asks the doctor.
func (p *postgresServer) otherRoles(ctx context.Context, r report) (fine string, err error) {
	const query = `SELECT quote_ident(r.rolname), s.setdatabase <> '0', split_part(c, '=', 1), split_part(c, '=', 2)
		FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) c
		WHERE r.rolname <> session_user AND r.rolcanlogin
		AND (s.setdatabase = '0' OR s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
		AND has_any_column_privilege(r.oid, ` + object + `, 'UPDATE')
		AND split_part(c, '=', 1) = ANY($3) AND split_part(c, '=', 2) !~ '^0+[a-z ]*$' ORDER BY 1, 3, 2`
	whys := map[string]string{}
	var names []string
	for _, limit := range postgresLimits {
		if limit.long == Warning {
			whys[limit.name] = limit.why
			names = append(names, limit.name)
		}
	}
	rows, _ := p.conn.Query(ctx, query, p.quoted, qualified(p.quoted), names)
	var role, name, value string
	var here bool
	_, err = pgx.ForEachRow(rows, []any{&role, &here, &name, &value}, func() error {
		where, alter := "", "ALTER ROLE "+role
		if here {
			where, alter = " in this database", alter+" IN DATABASE "+p.database
		}
		r.note(fmt.Sprintf("%s = %s is set for role %s%s, which may lock", name, value, role, where), whys[name],
			statements(alter+" SET "+name+" = 0").only("if its programs take locks, and should not lose them:"))
		return nil
	})
	return "no other role that may lock has a limit on locks or waits", err
}
