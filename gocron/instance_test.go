package txlockgocron_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	txlockgocron "github.com/txlock/txlock/gocron"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
)

const (
	interval = time.Minute      // between a job's ticks, by the schedulers' clocks
	patient  = 20 * time.Second // the limit for what must happen
)

// noon is a tick of every job.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// instance is a program with jobs: a gocron scheduler and a Locker. The test sets the scheduler's
// clock. The Locker has a pool of its own.
type instance struct {
	*engine
	label     string
	locker    *txlockgocron.Locker
	close     func() error // closes the Locker and its pool
	log       *journal
	clock     *clockwork.FakeClock
	scheduler gocron.Scheduler
	jobs      int          // that tick waits for; 0: one
	outcomes  chan outcome // one for each tick, sent when it is over
}

// outcome is the result of a tick on an instance.
type outcome struct {
	missed   error // why the job did not run
	unlocked error
}

// observed is a Locker that reports the outcome of each tick.
type observed struct {
	*instance
}

func (o observed) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lock, err := o.locker.Lock(ctx, name)
	if err != nil {
		o.outcomes <- outcome{missed: err}
		return nil, err
	}
	return unlocking(func(ctx context.Context) error {
		err := lock.Unlock(ctx)
		o.outcomes <- outcome{unlocked: err}
		return err
	}), nil
}

type unlocking func(ctx context.Context) error

func (u unlocking) Unlock(ctx context.Context) error { return u(ctx) }

// open opens a pool in the database of an instance, for either of two functions.
func (e *engine) open(label string, connections int, onPostgres func(*txlock.Locker[pgx.Tx]) error,
	onMySQL func(*txlock.Locker[*sql.Tx]) error,
) error {
	dsn, err := e.dsn(label, connections)
	if err != nil {
		return err
	}
	table := txlock.WithTable(e.table("txlock_slots"))
	if e.postgres {
		driver, err := postgres.Open(context.Background(), dsn)
		if err != nil {
			return err
		}
		return onPostgres(txlock.New(driver, table))
	}
	if _, err := e.admin.Exec("CREATE DATABASE IF NOT EXISTS " + label); err != nil {
		return err
	}
	driver, err := mysql.Open(context.Background(), dsn)
	if err != nil {
		return err
	}
	return onMySQL(txlock.New(driver, table))
}

// connect opens a Locker.
func (e *engine) connect(label string, connections int, options ...txlockgocron.Option) (*instance, error) {
	i := &instance{engine: e, label: label, log: &journal{}, outcomes: make(chan outcome, 1000)}
	options = append([]txlockgocron.Option{txlockgocron.WithLogger(slog.New(slog.NewTextHandler(i.log, nil)))},
		options...)
	return i, e.open(label, connections,
		func(locks *txlock.Locker[pgx.Tx]) error { return lockOn(i, locks, options) },
		func(locks *txlock.Locker[*sql.Tx]) error { return lockOn(i, locks, options) })
}

func lockOn[Tx any](i *instance, locks *txlock.Locker[Tx], options []txlockgocron.Option) (err error) {
	if i.locker, err = txlockgocron.New(locks, options...); err != nil {
		return errors.Join(err, locks.Close())
	}
	i.close = func() error { return errors.Join(i.locker.Close(), locks.Close()) }
	return locks.Install(context.Background())
}

// start starts a program. Its clock starts a moment after noon.
func (e *engine) start(t *testing.T, options ...txlockgocron.Option) *instance {
	t.Helper()
	i, err := e.connect(newLabel(), 0, options...)
	require.NoError(t, err)
	i.run(t, gocron.WithDistributedLocker(observed{i}))
	return i
}

// run starts the scheduler of a program, and ends both with the test.
func (i *instance) run(t *testing.T, with gocron.SchedulerOption) {
	t.Helper()
	require.NoError(t, i.schedule(with))
	t.Cleanup(func() {
		require.NoError(t, i.scheduler.Shutdown())
		_ = i.close() // the test may have killed some of its sessions
		if !i.postgres {
			database.Exec(t, i.admin, "DROP DATABASE "+i.label)
		}
	})
}

func (i *instance) schedule(with gocron.SchedulerOption) (err error) {
	i.clock = clockwork.NewFakeClockAt(noon.Add(time.Second))
	i.scheduler, err = gocron.NewScheduler(gocron.WithClock(i.clock), gocron.WithLocation(time.UTC), with,
		gocron.WithStopTimeout(patient))
	if err == nil {
		i.scheduler.Start()
	}
	return err
}

// everyMinute makes jobs of all instances due together.
func everyMinute() gocron.JobDefinition { return gocron.CronJob("* * * * *", false) }

// add adds a job that records its runs in the database, and then does the work, if any.
func (i *instance) add(name string, when gocron.JobDefinition, work ...func(context.Context)) error {
	note := "INSERT INTO gocron_runs VALUES (?, ?, ?)"
	if i.postgres {
		note = "INSERT INTO gocron_runs VALUES ($1, $2, $3)"
	}
	_, err := i.scheduler.NewJob(when, gocron.NewTask(func(ctx context.Context) error {
		if _, err := i.admin.Exec(note, name, i.label, i.clock.Now().Truncate(interval).Unix()); err != nil {
			return err
		}
		for _, w := range work {
			w(ctx)
		}
		return nil
	}), gocron.WithName(name))
	return err
}

// tick moves the instance's clock to the next minute. The clock must never stand exactly at a tick:
// gocron tidies its list of times a little after a tick that it left out, and could then run the
// job twice. And all jobs must wait for it already: one that comes later waits for the next.
func (i *instance) tick() error {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	if err := i.clock.BlockUntilContext(ctx, max(i.jobs, 1)); err != nil {
		return fmt.Errorf("no job is due: %w", err)
	}
	i.clock.Advance(interval)
	return nil
}

// outcome waits for the end of a tick.
func (i *instance) outcome(t *testing.T) outcome {
	t.Helper()
	return receive(t, i.outcomes)
}

// ran lets the next minute begin, and requires that the job runs here.
func (i *instance) ran(t *testing.T) {
	t.Helper()
	require.NoError(t, i.tick())
	require.Equal(t, outcome{}, i.outcome(t))
}

// missed lets the next minute begin, and requires that the job does not run here.
func (i *instance) missed(t *testing.T) {
	t.Helper()
	require.NoError(t, i.tick())
	o := i.outcome(t)
	require.ErrorIs(t, o.missed, txlock.ErrNotAcquired)
	require.NotErrorIs(t, o.missed, context.DeadlineExceeded)
}

// takesOver lets minutes begin until the job runs here. MariaDB closes a connection a little before
// it releases its locks.
func (i *instance) takesOver(t *testing.T) {
	t.Helper()
	eventually.True(t, "the job runs here", func() bool {
		require.NoError(t, i.tick())
		return i.outcome(t) == outcome{}
	})
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patient):
		require.Fail(t, "nothing came")
	}
	return value
}

// journal is a log that can be read while it is written to.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
