//go:build unix

package main_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
)

// In containers many processes have the same number. A holder or waiter with txlock's own number is
// not taken for txlock.
func TestSameProcess(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	driver, err := postgres.Open(background, f.url)
	require.NoError(t, err)
	locks := txlock.New(driver)
	defer locks.Close()
	for _, keys := range [][]string{{"k"}, {"k", "other"}} {
		c := command([]string{"TXLOCK_DSN=" + f.url}, append(
			append([]string{"run", "-v"}, keys...), "--", "echo", "mine")...)
		c.Args = append([]string{"sh", "-c", `read go; exec "$@"`, "sh", binary}, c.Args[1:]...)
		c.Path = "/bin/sh"
		p := start(t, c)
		held, ahead := make(chan error, 1), make(chan error, 1)
		locked, release := make(chan struct{}), make(chan struct{})
		go func() { held <- as(p.Process.Pid, locks, "k", locked, release) }()
		<-locked
		go func() {
			joins := make(chan struct{})
			close(joins)
			ahead <- as(p.Process.Pid, locks, "first", make(chan struct{}), joins, "k")
		}()
		f.waiters(t, 1)
		began := time.Now()
		// The wait of 5 s tells the two apart.
		eventually.True(t, "a second that passes", func() bool { return time.Since(began) > 5*time.Second })
		p.send(t, "go")
		eventually.True(t, "a word about both", func() bool {
			return regexp.MustCompile(`held for \S+ by session .*, 1 waiting ahead`).MatchString(p.stderr.String())
		})
		close(release)
		require.NoError(t, <-held)
		require.NoError(t, <-ahead)
		require.Equal(t, "mine", p.line(t))
		require.Zero(t, p.wait(t))
	}
}

// as locks a key in a session that shows another process number, closes locked, waits for release,
// and then locks further keys.
func as(process int, locks *txlock.Locker[pgx.Tx], key string, locked, release chan struct{}, further ...string) error {
	return locks.Mutex(key).Do(background, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("set local application_name = '#%d [%s]'", process, key))
		close(locked)
		<-release
		if err == nil && further != nil {
			_, err = locks.Mutex(further...).Lock(ctx) // ends with the Do
		}
		return err
	})
}

// A txlock inside another one with the same key says what it is about to wait for.
func TestNested(t *testing.T) {
	t.Parallel()
	f := installed(t, engines[0])
	const warning = "holds k: if that is the same lock, this one waits for itself"
	r := f.run(t, "run", "a", "k", "--", binary, "run", "--wait", "100ms", "b", "k", "--", "echo", "never")
	require.Equal(t, 75, r.code)
	require.Contains(t, r.stderr, warning)
	r = f.run(t, "run", "a", "k", "--", binary, "run", "b", "--", "true")
	require.Equal(t, result{}, r)
	require.Equal(t, result{}, f.run(t, "run", "k", "--", binary, "run", "--try", "-E", "0", "k", "--", "echo",
		"never"))
}
