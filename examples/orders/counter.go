package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/shop"
)

// counter is a desk with its shop, for any of the databases.
type counter interface {
	place(ctx context.Context, w way, o shop.Order) (result shop.Outcome, deadlocks int, err error)
	open(ctx context.Context, stock map[string]int) error
	books(ctx context.Context) (shop.Books, error)
	dropTables(ctx context.Context) error
	Close() error
}

func connect(ctx context.Context, dsn string) (counter, error) {
	if strings.HasPrefix(dsn, "postgres://") {
		return connectPostgres(ctx, dsn)
	}
	return connectMySQL(ctx, dsn)
}

func connectPostgres(ctx context.Context, dsn string) (counter, error) {
	address, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	settings := address.Query()
	settings.Set("pool_max_conns", strconv.Itoa(workers))
	address.RawQuery = settings.Encode()
	pool, err := pgxpool.New(ctx, address.String()) // for work that needs no lock
	if err != nil {
		return nil, err
	}
	opened, err := postgres.Open(ctx, address.String())
	if err != nil {
		pool.Close()
		return nil, err
	}
	return newDesk(txlock.New(opened, txlock.WithTable(slots)), shop.NewPostgres(pool), func() error {
		pool.Close()
		return nil
	}), nil
}

// connectMySQL connects to MySQL or MariaDB.
func connectMySQL(ctx context.Context, dsn string) (counter, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true // each statement is one round trip instead of three
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(workers)
	opened, err := mysql.Open(ctx, config.FormatDSN())
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newDesk(txlock.New(opened, txlock.WithTable(slots)), shop.NewMySQL(db), db.Close), nil
}

func (d desk[Tx]) open(ctx context.Context, stock map[string]int) error {
	if err := d.locks.Install(ctx); err != nil {
		return err
	}
	return d.ledger.Open(ctx, stock)
}

func (d desk[Tx]) books(ctx context.Context) (shop.Books, error) { return d.ledger.Books(ctx) }

func (d desk[Tx]) dropTables(ctx context.Context) error { return d.ledger.Drop(ctx, slots) }

func (d desk[Tx]) Close() error { return errors.Join(d.close(), d.locks.Close()) }
