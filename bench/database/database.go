// Package database opens the pools of contestants in SQL and of the work under a lock.
package database

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock/bench/contest"
)

// Pool connects to PostgreSQL through pgx, with connections for this many concurrent callers. The
// connections are open when it returns, and stay open.
func Pool(ctx context.Context, address string, callers int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(callers), 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := together(callers, func() (release func(), err error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Release, conn.Ping(ctx)
	}); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return pool, nil
}

// SQL connects to a database through database/sql, with connections for this many concurrent
// callers. The connections are open when it returns, and stay open. On MySQL and MariaDB, the
// client interpolates arguments, so that each statement is one round trip.
func SQL(ctx context.Context, server contest.Server, address string, callers int) (*sql.DB, error) {
	db, err := open(server, address)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(callers)
	db.SetMaxIdleConns(callers)
	if err := together(callers, func() (release func(), err error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		return func() { _ = conn.Close() }, nil
	}); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("connect to %s: %w", server, err)
	}
	return db, nil
}

func open(server contest.Server, address string) (*sql.DB, error) {
	if server == contest.PostgreSQL {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*config), nil
	}
	config, err := mysql.ParseDSN(address)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// together takes n connections at once, and then returns them all.
func together(n int, take func() (release func(), err error)) error {
	var group errgroup.Group
	releases := make([]func(), n)
	for i := range n {
		group.Go(func() (err error) {
			releases[i], err = take()
			return err
		})
	}
	err := group.Wait()
	for _, release := range releases {
		if release != nil {
			release()
		}
	}
	return err
}
