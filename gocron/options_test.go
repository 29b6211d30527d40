package txlockgocron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	txlockgocron "github.com/txlock/txlock/gocron"
)

// Bad options are errors of New, because gocron drops those of Lock.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	locks := txlock.New[pgx.Tx](nil)
	for name, option := range map[string]txlockgocron.Option{
		"nil option":           nil,
		"must not be negative": txlockgocron.WithLockAtLeastFor(-time.Second),
		"WithRows":             txlockgocron.WithRows("jobs", ""),
		"at least 1s":          txlockgocron.WithPeriod("report", time.Second-1),
		"nil logger":           txlockgocron.WithLogger(nil),
	} {
		locker, err := txlockgocron.New(locks, option)
		require.ErrorContains(t, err, name)
		require.Nil(t, locker)
	}
	_, err := txlockgocron.New[pgx.Tx](nil)
	require.ErrorContains(t, err, "nil locks")
	elector, err := txlockgocron.NewElector(locks.Election("jobs", "me"), txlockgocron.WithPeriod("report", time.Hour))
	require.ErrorContains(t, err, "WithLogger alone")
	require.Nil(t, elector)
}

// Programs with different prefixes do not exclude each other.
func TestPrefix(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		shop, shopToo, bank := e.start(t, txlockgocron.WithPrefix("shop:")),
			e.start(t, txlockgocron.WithPrefix("shop:")), e.start(t, txlockgocron.WithPrefix("bank:"))
		for _, i := range []*instance{shop, shopToo, bank} {
			require.NoError(t, i.add(shop.label, everyMinute()))
		}
		shop.ran(t)
		shopToo.missed(t)
		bank.ran(t)
	})
}

// Jobs lock rows of the caller's table. A job without a row is left out, and the log reports it.
func TestRows(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		option := txlockgocron.WithRows(e.table("gocron_jobs"), "name")
		first, second := e.start(t, option), e.start(t, option)
		job := first.label
		for _, i := range []*instance{first, second} {
			require.NoError(t, i.add(job, everyMinute()))
		}
		require.NoError(t, first.tick())
		require.ErrorIs(t, first.outcome(t).missed, txlock.ErrNoRow)
		require.Contains(t, first.log.String(), job)

		insert := "INSERT INTO gocron_jobs VALUES (?)"
		if e.postgres {
			insert = strings.ReplaceAll(insert, "?", "$1")
		}
		_, err := e.admin.Exec(insert, job)
		require.NoError(t, err)
		first.ran(t)
		second.missed(t)
	})
}
