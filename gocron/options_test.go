package txlockgocron_test

import (
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
		"at least 1s":          txlockgocron.WithPeriod("report", time.Second-1),
		"nil logger":           txlockgocron.WithLogger(nil),
	} {
		locker, err := txlockgocron.New(locks, option)
		require.ErrorContains(t, err, name)
		require.Nil(t, locker)
	}
	_, err := txlockgocron.New[pgx.Tx](nil)
	require.ErrorContains(t, err, "nil locks")
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
