package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
)

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
