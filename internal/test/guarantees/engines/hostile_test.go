package engines

import (
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
// Where pg_catalog is not the first schema in that, it sends no more than it takes to see that.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range testbed.PostgresPgx {
			t.Run(c.Name, func(t *testing.T) { t.Parallel(); hostileNames(t, e, c) })
		}
		for _, c := range testbed.PostgresSQL {
			t.Run(c.Name, func(t *testing.T) { t.Parallel(); hostileNames(t, e, c) })
		}
	})
}

func hostileNames[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	dsn := databaseIn(t, e, "UTF8")
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	log := eavesdrop(t, u.Host)
	u.Host = log.listener.Addr().String()
	tapped := u.String()

	admin, err := pgx.Connect(background, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close(background)) })
	run := func(statement string) {
		_, err := admin.Exec(background, statement)
		require.NoError(t, err)
	}
	run("CREATE TABLE mine (id int PRIMARY KEY, n int); INSERT INTO mine VALUES (1, 1), (2, 2)")
	trapped := func() (n bool) {
		require.NoError(t, admin.QueryRow(background, "SELECT is_called FROM public.traps").Scan(&n))
		return n
	}

	everyVerb(t, c, tapped, c.Begin(t, dsn, sql.LevelReadCommitted))
	untilRenewed(t, c, tapped, log)
	log.qualified(t)
	names := log.functions()
	require.Contains(t, names, "set_config")
	run(strings.Replace(hostileSQL, "@names", "'{"+strings.Join(names, ",")+"}'", 1))
	everyVerb(t, c, tapped, c.Begin(t, dsn, sql.LevelReadCommitted))
	require.False(t, trapped())
	log.qualified(t)

	run(`CREATE SCHEMA "of locks"`)
	refusesSettings(t, c, dsn+"&search_path="+url.PathEscape(`"of locks",public,pg_catalog`),
		"search_path = of locks,public,pg_catalog, ")
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
		_, err = m.TryLock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		_, err = m.Within(20 * time.Millisecond).Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
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
	nothing := func(context.Context, Tx) error { return nil }
	read := txlock.Statement{SQL: "/* mine */ SELECT n FROM mine WHERE id = 1", Into: []any{new(int)}}
	add := txlock.Statement{SQL: "/* mine */ UPDATE mine SET n = n + 1 WHERE id = 2", Rows: 1}
	for _, m := range mutexes {
		held(m)
		ok(m.Do(background, func(ctx context.Context, tx Tx) error {
			ok(c.Exec(ctx, tx, "/* mine */ SELECT 1"))
			ok(locks.Mutex("inner").Do(ctx, nothing))
			require.Error(t, locks.Mutex("other").Do(ctx, func(context.Context, Tx) error { return errWork }))
			_, err := locks.Mutex("tried").TryLock(ctx)
			ok(err)
			_, err = locks.Mutex("inner").Exec(ctx, add)
			return err
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
			_, err := once.Do(background, nothing)
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
	ok(claimed.Do(background, nothing))
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
func untilRenewed[Tx any](t *testing.T, c testbed.Client[Tx], dsn string, log *ear) {
	t.Helper()
	driver, pool := c.Connect(t, dsn, 2)
	defer pool.Close()
	locks := txlock.New(driver, txlock.WithLease(shortLease))
	lock, err := locks.Mutex("a", "b").Lock(background)
	require.NoError(t, err)
	shared, err := locks.Mutex("c").Shared().Lock(lock.Context())
	require.NoError(t, err)
	eventually.True(t, "a renewal", func() bool { return log.heard("rollback and chain") })
	require.NoError(t, shared.Unlock(background))
	require.NoError(t, lock.Unlock(background))
}

// ear forwards connections to a server, and keeps what clients send.
type ear struct {
	listener net.Listener
	mu       sync.Mutex
	texts    map[string]bool
	conns    []net.Conn
}

func eavesdrop(t *testing.T, server string) *ear {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &ear{listener: listener, texts: map[string]bool{}}
	var forwards sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		e.mu.Lock()
		for _, conn := range e.conns {
			_ = conn.Close()
		}
		e.mu.Unlock()
		forwards.Wait()
	})
	forwards.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			e.mu.Lock()
			e.conns = append(e.conns, client, to)
			e.mu.Unlock()
			forwards.Go(func() { _, _ = io.Copy(client, to); _ = client.Close() })
			forwards.Go(func() { e.listen(io.TeeReader(client, to)); _ = to.Close() })
		}
	})
	return e
}

// listen reads the messages of a client: the first has no letter.
func (e *ear) listen(r io.Reader) {
	head := make([]byte, 5)
	for first := true; ; first = false {
		part := head
		if first {
			part = head[1:]
		}
		if _, err := io.ReadFull(r, part); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		parts := strings.Split(string(body), "\x00")
		switch {
		case first:
		case head[0] == 'Q':
			e.note(parts[0])
		case head[0] == 'P':
			e.note(parts[1])
		}
	}
}

func (e *ear) note(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts[text] = true
}

func (e *ear) heard(part string) (heard bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for text := range e.texts {
		heard = heard || strings.Contains(text, part)
	}
	return heard
}

var (
	literals = regexp.MustCompile(`(?s)'[^']*'|"[^"]*"|/\*.*?\*/|--[^\n]*`)
	called   = regexp.MustCompile(`([\w.]*\b[a-zA-Z_]\w*)\(`)
	typed    = regexp.MustCompile(`::\s*([\w.]+)`)
	viewed   = regexp.MustCompile(`[\w.]*\bpg_\w+`)
	// grammar is what looks like a function or a type, and is none.
	grammar = strings.Fields("coalesce nullif greatest least extract any array exists row operator " +
		"int bigint boolean interval")
)

// qualified shows that each function, type and view in what was sent is that of pg_catalog.
func (e *ear) qualified(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Greater(t, len(e.texts), 50)
	for text := range e.texts {
		bare := literals.ReplaceAllString(text, "''")
		if strings.Contains(text, "/* mine */") {
			continue
		}
		for _, of := range []*regexp.Regexp{called, typed} {
			for _, match := range of.FindAllStringSubmatch(bare, -1) {
				if !slices.Contains(grammar, strings.ToLower(match[1])) {
					require.Contains(t, match[1], "pg_catalog.", text)
				}
			}
		}
		for _, name := range viewed.FindAllString(bare, -1) {
			require.True(t, strings.HasPrefix(name, "pg_catalog"), "%s in %s", name, text)
		}
	}
}

// functions are those that were called.
func (e *ear) functions() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for text := range e.texts {
		for _, match := range called.FindAllStringSubmatch(literals.ReplaceAllString(text, "''"), -1) {
			if name, ours := strings.CutPrefix(match[1], "pg_catalog."); ours {
				names = append(names, strings.ToLower(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
