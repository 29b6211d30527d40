package doctor_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/must"
)

// A user who may lock is told what each other kind of lock needs. With that, and no more, each verb
// runs.
func TestGrantsOfKinds(t *testing.T) {
	onSites(t, all, func(t *testing.T, s *site) {
		s.install(t, txlock.WithFencing())
		for _, suffix := range []string{"_leaders", "_once", "_claims", "_permits"} {
			s.execute(t, "REVOKE ALL ON txlock_slots"+suffix+" FROM %s")
		}
		if !s.postgres {
			s.execute(t, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM %s", "GRANT SELECT, UPDATE ON txlock_slots TO %s")
		}
		var found int
		for _, finding := range s.examine(t) {
			switch finding.Check {
			case "kinds":
				require.Equal(t, doctor.Note, finding.Severity)
				found++
				s.execute(t, finding.Fix.Text)
			case "privileges":
				s.execute(t, finding.Fix.Text)
			}
		}
		require.Equal(t, 4, found)
		require.Equal(t, doctor.OK, find(t, s.examine(t), "kinds").Severity)
		if s.postgres {
			useAll(t, locker(t, postgres.Open, s.dsn), func(context.Context, pgx.Tx) error { return nil })
		} else {
			useAll(t, locker(t, txmysql.Open, s.dsn), func(context.Context, *sql.Tx) error { return nil })
		}
	})
}

func useAll[Tx any](t *testing.T, locks *txlock.Locker[Tx], work func(context.Context, Tx) error) {
	require.True(t, must.Get(locks.Once("a").Do(background, work))(t))
	require.NoError(t, locks.Once("a").Forget(background))
	claim := must.Get(locks.Claim("a").TryTake(background, "me", time.Minute))(t)
	must.Get(claim.Extend(background, time.Minute))(t)
	require.NoError(t, claim.Do(background, work))
	require.NoError(t, claim.Release(background))
	require.NoError(t, locks.Semaphore("a", 2).Do(background, work))
	require.NoError(t, locks.Election("a", "me").Lead(background, func(context.Context, int64) error {
		require.Equal(t, "me", must.Get(locks.Election("a", "me").Leader(background))(t).Identity)
		return nil
	}))
	must.Get(locks.Sweep(background, time.Hour))(t)
}

// The doctor runs nothing that somebody has made in the schema public, where it fits better than
// what is in pg_catalog: whoever asks the doctor may be an administrator.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	onEvery(t, isPostgres, func(t *testing.T, e *engine) {
		s := newSite(t, e, "CREATE SCHEMA tenant", "CREATE TABLE tenant.txlock_slots (slot int)",
			"ALTER ROLE %s SET lock_timeout = '1h'",
			"CREATE SEQUENCE traps", "GRANT ALL ON SEQUENCE traps TO PUBLIC")
		want := s.examine(t)
		for _, function := range []string{
			"quote_ident(name) RETURNS text", "quote_literal(name) RETURNS text",
			"replace(name, text, text) RETURNS text", "format(text, name, name) RETURNS text",
			"format(text, name, name, name) RETURNS text",
			"concat(text, name) RETURNS text", "named(name, name) RETURNS text",
			"compares(oid, int) RETURNS boolean",
		} {
			s.execute(t, "CREATE FUNCTION public."+function+
				" LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('public.traps'); RETURN NULL; END $$")
		}
		s.execute(t, "CREATE OPERATOR public.|| (leftarg = name, rightarg = name, function = public.named)",
			"CREATE OPERATOR public.= (leftarg = oid, rightarg = int, function = public.compares)",
			"CREATE OPERATOR public.<> (leftarg = oid, rightarg = int, function = public.compares)")
		findings := s.examine(t)
		var trapped bool
		require.NoError(t, s.admin.QueryRow("SELECT is_called FROM public.traps").Scan(&trapped))
		require.False(t, trapped)
		require.Equal(t, ailing(want), ailing(findings))
	})
}

// A table of the lock table's name in another schema is named: whoever finds it first locks there.
func TestNamesakes(t *testing.T) {
	onEvery(t, isPostgres, func(t *testing.T, e *engine) {
		s := newSite(t, e, "CREATE SCHEMA tenant", "CREATE TABLE tenant.txlock_slots (slot int)")
		found := find(t, s.examine(t), "table-namesakes")
		require.Equal(t, doctor.Note, found.Severity)
		require.Contains(t, found.Found, "tenant.txlock_slots")
	})
}
