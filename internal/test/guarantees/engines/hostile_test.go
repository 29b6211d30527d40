package engines

import (
	"context"
	"database/sql"
	"encoding/csv"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// hostileSQL makes, in the schema public, what fits a call of the library's better than what is in
// pg_catalog, or as well: functions of each name that it calls, operators for all pairs of types
// for which pg_catalog has none, types and views. Whatever runs leaves a trace that no rollback
// undoes.
const hostileSQL = `
CREATE SEQUENCE public.traps;
CREATE FUNCTION public.trap() RETURNS boolean LANGUAGE sql AS $$ SELECT pg_catalog.nextval('public.traps') > 0 $$;
DO $$
DECLARE
	o record;
	types text[] := '{int2,int4,int8,numeric,float8,text,varchar,name,oid,"char",bool,bytea,interval,timestamptz,xid,
		regclass,text[],int4[],int8[],name[],timestamptz[],regtype,tid,int2[]}';
	trapping text := 'CREATE FUNCTION public.%I(%s) RETURNS boolean LANGUAGE sql AS ''SELECT public.trap()''';
	l text; r text; n int; t text;
BEGIN
	FOR o IN SELECT proname, pg_catalog.oidvectortypes(proargtypes) args FROM pg_catalog.pg_proc
			WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (@names) LOOP
		BEGIN
			EXECUTE pg_catalog.format(trapping, o.proname, o.args);
		EXCEPTION WHEN OTHERS THEN NULL; END;
		FOREACH t IN ARRAY '{text,int4,int8,unknown,varchar}'::text[] LOOP
			FOR n IN 1..6 LOOP
				BEGIN
					EXECUTE pg_catalog.format(trapping, o.proname,
						pg_catalog.array_to_string(pg_catalog.array_fill(t, ARRAY[n]), ','));
				EXCEPTION WHEN OTHERS THEN NULL; END;
			END LOOP;
		END LOOP;
	END LOOP;
	FOREACH l IN ARRAY types LOOP
		FOREACH r IN ARRAY types LOOP
			EXECUTE pg_catalog.format(trapping, 'trapped', l || ',' || r);
			FOREACH t IN ARRAY '{=,<>,<,>,<=,>=,||,*,/,+,-,%,~,!~,~~,@>}'::text[] LOOP
				BEGIN
					EXECUTE 'CREATE OPERATOR public.' || t || ' (leftarg=' || l || ', rightarg=' || r ||
						', function=public.trapped)';
				EXCEPTION WHEN OTHERS THEN NULL; END;
			END LOOP;
		END LOOP;
	END LOOP;
	FOREACH t IN ARRAY '{text,oid,regclass,name,bytea,float8,timestamptz}'::text[] LOOP
		EXECUTE 'CREATE TYPE public.' || pg_catalog.quote_ident(t) || ' AS (a int)';
	END LOOP;
	FOREACH t IN ARRAY '{pg_locks,pg_stat_activity,pg_class,pg_namespace,pg_extension,pg_database}'::text[] LOOP
		EXECUTE 'CREATE VIEW public.' || t || ' AS SELECT public.trap() AS pid, public.trap() AS oid';
	END LOOP;
END $$`

// The library runs nothing that somebody else has made, whoever may create in the search_path.
// Where pg_catalog is not the first schema in that, it sends no more than it takes to see that. The
// server is the test's own: its log has all that was sent.
func TestHostileNames(t *testing.T) {
	eachPostgres(t, func(t *testing.T, given *testbed.Engine) {
		e := testbed.Own(t, given.Kind, "-c", "logging_collector=on", "-c", "log_destination=csvlog",
			"-c", "log_statement=all", "-c", "log_rotation_size=0")
		clientsOf(t, e, hostileNames[pgx.Tx], hostileNames[*sql.Tx])
	})
}

func hostileNames[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	dsn := databaseIn(t, e, "UTF8")
	u := must.Get(url.Parse(dsn))(t)
	texts := func() []string { return sentTo(t, e, strings.TrimPrefix(u.Path, "/")) }
	admin := must.Get(pgx.Connect(background, dsn+"&application_name=admin"))(t)
	t.Cleanup(func() { require.NoError(t, admin.Close(background)) })
	run := func(statement string) { require.NoError(t, testbed.ErrorOf(admin.Exec(background, statement))) }
	run("CREATE TABLE mine (id int PRIMARY KEY, n int); INSERT INTO mine VALUES (1, 1), (2, 2)")
	trapped := func() (n bool) {
		require.NoError(t, admin.QueryRow(background, "SELECT is_called FROM public.traps").Scan(&n))
		return n
	}

	everyVerb(t, c, dsn, c.Begin(t, dsn, sql.LevelReadCommitted))
	untilRenewed(t, c, dsn, texts)
	names := functions(texts())
	require.Contains(t, names, "set_config")
	run(strings.Replace(hostileSQL, "@names", "'{"+strings.Join(names, ",")+"}'", 1))
	everyVerb(t, c, dsn, c.Begin(t, dsn, sql.LevelReadCommitted))
	require.False(t, trapped())

	run(`CREATE SCHEMA "of locks"`)
	refusesAll(t, c, dsn+"&search_path="+url.PathEscape(`"of locks",public,pg_catalog`),
		"search_path = of locks,public,pg_catalog, ", nil)
	require.False(t, trapped())
}

// everyVerb sends what the library can send, and has it succeed.
func everyVerb[Tx any](t *testing.T, c testbed.Client[Tx], dsn string, tx Tx) {
	t.Helper()
	driver, pool := c.Connect(t, dsn, 8)
	locks := txlock.New(driver, txlock.WithFencing(), txlock.WithSlots(64))
	ok := func(err error) { t.Helper(); require.NoError(t, err) }
	ok(locks.Install(background))
	ok(locks.Check(background))
	ok(locks.Ping(background))
	semaphore := locks.Semaphore("s", 1)
	held := func(m *txlock.Mutex[Tx]) {
		t.Helper()
		lock, err := m.Lock(background)
		ok(err)
		testbed.Misses(t, m)
		require.ErrorIs(t, testbed.ErrorOf(m.Within(20*time.Millisecond).Lock(background)), txlock.ErrNotAcquired)
		_, err = locks.Inspect(background)
		ok(err)
		ok(lock.Unlock(background))
		lock, err = m.TryLock(background)
		ok(err)
		if m != semaphore {
			again, err := m.Lock(lock.Context())
			ok(err)
			ok(again.Unlock(background))
		}
		ok(lock.Unlock(background))
	}
	mutexes := []*txlock.Mutex[Tx]{
		locks.Mutex("a"), locks.Mutex("a", "b", "c"), locks.Rows("mine", "id", 1), locks.Rows("mine", "id", 1, 2),
		semaphore,
	}
	read := txlock.Statement{SQL: "SELECT n FROM mine WHERE id = 1", Into: []any{new(int)}}
	add := txlock.Statement{SQL: "UPDATE mine SET n = n + 1 WHERE id = 2", Rows: 1}
	for _, m := range mutexes {
		held(m)
		ok(m.Do(background, func(ctx context.Context, tx Tx) error {
			ok(c.Exec(ctx, tx, "SELECT 1"))
			ok(locks.Mutex("inner").Do(ctx, idle[Tx]))
			require.Error(t, locks.Mutex("other").Do(ctx, func(context.Context, Tx) error { return errWork }))
			_, err := locks.Mutex("tried").TryLock(ctx)
			ok(err)
			return testbed.ErrorOf(locks.Mutex("inner").Exec(ctx, add))
		}))
		if m == semaphore {
			continue
		}
		_, err := m.Exec(background, add)
		ok(err)
		_, err = m.Exec(background, read, add)
		ok(err)
	}
	shared, err := locks.Mutex("a", "b").Shared().Within(time.Minute).Lock(background)
	ok(err)
	ok(shared.Unlock(background))

	ok(locks.Mutex("tx").LockTx(background, tx))
	ok(locks.Mutex("tx2", "tx3").TryLockTx(background, tx))
	ok(locks.Mutex("tx4").Within(time.Minute).LockTx(background, tx))
	ok(locks.Rows("mine", "id", 2).LockTx(background, tx))
	require.ErrorIs(t, locks.Rows("mine", "id", 2, 3).LockTx(background, tx), txlock.ErrNoRow)
	ok(locks.Mutex("tx5").Shared().LockTx(background, tx))
	_, err = locks.Once("tx").DoTx(background, tx)
	ok(err)
	ok(c.End(background, tx, true))

	for _, once := range []*txlock.Once[Tx]{locks.Once("o"), locks.Once("p").Per(time.Hour)} {
		for range 2 {
			_, err := once.Do(background, idle[Tx])
			ok(err)
		}
		_, _, err := once.Done(background)
		ok(err)
		ok(once.Forget(background))
	}
	claimed, err := locks.Claim("seat").TryTake(background, "me", time.Minute)
	ok(err)
	_, err = locks.Claim("seat").TryTake(background, "you", time.Minute)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	ok(claimed.Do(background, idle[Tx]))
	_, err = claimed.Extend(background, time.Hour)
	ok(err)
	_, err = locks.Claim("seat").State(background)
	ok(err)
	ok(claimed.Release(background))
	_, err = locks.Sweep(background, time.Hour)
	ok(err)
	leads, cancel := context.WithCancel(background)
	_ = locks.Election("e", "me").Lead(leads, func(context.Context, int64) error {
		_, err := locks.Election("e", "me").Leader(background)
		ok(err)
		cancel()
		return nil
	})
	ok(locks.Close())
	pool.Close()
}

// untilRenewed holds locks, exclusive and shared, until they are renewed.
func untilRenewed[Tx any](t *testing.T, c testbed.Client[Tx], dsn string, texts func() []string) {
	t.Helper()
	locks := c.Locker(t, dsn, 2, txlock.WithLease(shortLease))
	lock := testbed.Lock(t, locks.Mutex("a", "b"))
	shared := testbed.LockIn(t, lock.Context(), locks.Mutex("c").Shared())
	eventually.Every(t, "a renewal", shortLease/4, func() bool {
		return strings.Contains(strings.Join(texts(), "\n"), "rollback and chain")
	})
	testbed.Unlock(t, shared, lock)
}

// sentTo are the texts that clients of a database have sent, but its administrator's. All of them
// are in the server's log.
func sentTo(t *testing.T, e *testbed.Engine, database string) (texts []string) {
	t.Helper()
	records := must.Get(csv.NewReader(strings.NewReader(logOf(t, e))).ReadAll())(t)
	const ofDatabase, message, application = 2, 13, 22
	for _, r := range records {
		kind, text, _ := strings.Cut(r[message], ": ")
		if r[ofDatabase] == database && r[application] != "admin" && (kind == "statement" ||
			strings.HasPrefix(kind, "execute ")) {
			texts = append(texts, text)
		}
	}
	return texts
}

var called = regexp.MustCompile(`pg_catalog\.(\w+)\(`)

// functions are those that were called.
func functions(texts []string) (names []string) {
	for _, match := range called.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		names = append(names, strings.ToLower(match[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
