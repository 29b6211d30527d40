package txlockgocron_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	txlockgocron "github.com/txlock/txlock/gocron"
)

// Several instances of this program run. Each night one of them writes the report.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// The pool needs room for all jobs that begin at midnight.
	driver, err := postgres.Open(ctx, "postgres://localhost/shop?pool_max_conns=20")
	if err != nil {
		log.Fatal(err)
	}
	locks := txlock.New(driver)
	defer locks.Close()
	if err := locks.Install(ctx); err != nil {
		log.Fatal(err)
	}

	locker, err := txlockgocron.New(locks, txlockgocron.WithLockAtLeastFor(30*time.Second),
		txlockgocron.WithLogger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	_, err = scheduler.NewJob(gocron.CronJob("0 0 * * *", false), gocron.NewTask(func(ctx context.Context) error {
		return writeReport(locker.Context(ctx, "nightly report")) // the context ends when the lock is lost
	}), gocron.WithName("nightly report"))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-ctx.Done()
}

func writeReport(context.Context) error { return nil }

// Several instances of this program run. One of them runs all jobs, until it ends or dies.
func ExampleNewElector() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	driver, err := postgres.Open(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	locks := txlock.New(driver)
	defer locks.Close()
	if err := locks.Install(ctx); err != nil {
		log.Fatal(err)
	}

	host, _ := os.Hostname()
	elector, err := txlockgocron.NewElector(locks.Election("jobs", host), txlockgocron.WithLogger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	defer elector.Close()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func(ctx context.Context) error {
		return writeReport(elector.Context(ctx)) // the context ends when this instance leads no more
	}))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-ctx.Done()
}
