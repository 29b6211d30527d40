package txlockgoose_test

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	txlockgoose "github.com/txlock/txlock/goose"
)

//go:embed testdata/*.sql
var files embed.FS

// Several replicas of this program start at the same time. One of them migrates.
func ExampleNew() {
	if err := migrate(context.Background(), "postgres://localhost/shop"); err != nil {
		log.Fatal(err)
	}
}

func migrate(ctx context.Context, dsn string) (err error) {
	driver, err := postgres.Open(ctx, dsn)
	if err != nil {
		return err
	}
	locks := txlock.New(driver)
	defer func() { err = errors.Join(err, locks.Close()) }()
	if err := locks.Install(ctx); err != nil { // creates the lock table, which no migration may touch
		return err
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	folder, err := fs.Sub(files, "testdata")
	if err != nil {
		return err
	}

	// Within limits the wait. A deadline of ctx would also cut a long CREATE INDEX.
	locker := txlockgoose.New(locks.Mutex("migrations").Within(time.Hour))
	provider, err := goose.NewProvider(goose.DialectPostgres, db, folder, goose.WithLocker(locker))
	if err != nil {
		return err
	}
	ctx, stop := txlockgoose.Context(ctx)
	defer stop()
	results, err := provider.Up(ctx)
	for _, r := range results {
		fmt.Println("applied", r.Source.Path)
	}
	return err
}
