package txlock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/servers"
)

// BenchmarkLock is an uncontended Lock and Unlock beside the same statements written by hand for the same client library,
// as well as one can: what is in one round trip here is in one round trip there. The servers flush nothing, and neither
// do these cycles: a lock without work writes nothing that has to be flushed.
func BenchmarkLock(b *testing.B) {
	for _, e := range engines {
		b.Run(e.Name, func(b *testing.B) {
			if e.Kind == servers.MySQL || e.Kind == servers.MariaDB {
				b.Run("sql.DB", func(b *testing.B) { benchmarkMySQLPool(b, e) })
				b.Run("mysql.Open", func(b *testing.B) { benchmarkMySQLOpen(b, e) })
				return
			}
			b.Run("pgxpool", func(b *testing.B) { benchmarkPgx(b, e) })
			b.Run("sql.DB", func(b *testing.B) { benchmarkPostgresSQL(b, e) })
		})
	}
}

const benchmarkSlot = 2575 // of "sku:42"

func compare[Tx any](b *testing.B, e *engine, locks *txlock.Locker[Tx], byHand func() error) {
	if err := locks.Install(background); err != nil {
		b.Fatal(err)
	}
	m := locks.Mutex("sku:42")
	// In turns, so that both meet the same moods of the machine.
	var hand, ours time.Duration
	for b.Loop() {
		start := time.Now()
		if err := byHand(); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		lock, err := m.Lock(background)
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Unlock(background); err != nil {
			b.Fatal(err)
		}
		hand += middle.Sub(start)
		ours += time.Since(middle)
	}
	b.ReportMetric(0, "ns/op") // of both together it says nothing
	b.ReportMetric(float64(hand.Nanoseconds())/float64(b.N), "ns/by-hand")
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "ns/txlock")
	b.ReportMetric(float64(ours)/float64(hand), "ratio")
}

func benchmarkPgx(b *testing.B, e *engine) {
	pool, err := pgxpool.New(background, e.DSN)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	compare(b, e, txlock.New(postgres.New(pool), txlock.WithTable(e.table())), func() error {
		conn, err := pool.Acquire(background)
		if err != nil {
			return err
		}
		defer conn.Release()
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		batch.Queue("SELECT pg_advisory_xact_lock($1)", 42)
		batch.Queue("SELECT slot FROM "+e.table()+" WHERE slot = $1 FOR UPDATE", benchmarkSlot)
		results := conn.SendBatch(background, &batch)
		if err := results.Close(); err != nil {
			return err
		}
		return results.Tx().Rollback(background)
	})
}

func benchmarkPostgresSQL(b *testing.B, e *engine) {
	db, err := sql.Open("pgx", e.DSN)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	compare(b, e, txlock.New(postgres.NewSQL(db), txlock.WithTable(e.table())), func() error {
		tx, err := db.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec("SELECT pg_advisory_xact_lock($1)", 42); err != nil {
			return err
		}
		var slot int
		if err := tx.QueryRow("SELECT slot FROM "+e.table()+" WHERE slot = $1 FOR UPDATE", benchmarkSlot).Scan(&slot); err != nil {
			return err
		}
		return tx.Rollback()
	})
}

func benchmarkMySQLPool(b *testing.B, e *engine) {
	db, err := sql.Open("mysql", e.DSN)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	compare(b, e, txlock.New(mysql.New(db), txlock.WithTable(e.table())), func() error {
		tx, err := db.BeginTx(background, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var slot int
		if err := tx.QueryRow("SELECT slot FROM " + e.table() + " WHERE slot = 2575 FOR UPDATE").Scan(&slot); err != nil {
			return err
		}
		return tx.Rollback()
	})
}

func benchmarkMySQLOpen(b *testing.B, e *engine) {
	db, err := sql.Open("mysql", e.DSN)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(background)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(background, "SET autocommit = 0"); err != nil {
		b.Fatal(err)
	}
	driver, err := mysql.Open(background, e.DSN)
	if err != nil {
		b.Fatal(err)
	}
	compare(b, e, txlock.New(driver, txlock.WithTable(e.table())), func() error {
		var slot int
		row := conn.QueryRowContext(background, "SELECT slot FROM "+e.table()+" WHERE slot = 2575 FOR UPDATE")
		if err := row.Scan(&slot); err != nil {
			return err
		}
		_, err := conn.ExecContext(background, "ROLLBACK")
		return err
	})
}

// BenchmarkDo is a Do with one UPDATE in it.
func BenchmarkDo(b *testing.B) {
	for _, e := range engines {
		if e.Kind != servers.Postgres18 {
			continue
		}
		driver, err := postgres.Open(background, e.DSN)
		if err != nil {
			b.Fatal(err)
		}
		locks := txlock.New(driver, txlock.WithTable(e.table()))
		if err := locks.Install(background); err != nil {
			b.Fatal(err)
		}
		b.Run(e.Name, func(b *testing.B) {
			for b.Loop() {
				err := locks.Mutex("sku:42").Do(background, func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT 1")
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := locks.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
