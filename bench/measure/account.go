package measure

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/database"
)

// openAccounts creates the table of the numbers that the processes of a fault add to.
func (l *Lab) openAccounts(ctx context.Context) error {
	for _, server := range contest.Databases {
		if l.Testbed.Missing(server) != nil {
			continue
		}
		db, err := database.SQL(ctx, server, l.Testbed.Address(server), 1)
		if err != nil {
			return err
		}
		for _, statement := range []string{
			"DROP TABLE IF EXISTS bench_accounts",
			"CREATE TABLE bench_accounts (name VARCHAR(100) PRIMARY KEY, number BIGINT NOT NULL)",
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				_ = db.Close()
				return fmt.Errorf("%s: %w", server, err)
			}
		}
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

// account is the number that the processes of one fault add to.
type account struct {
	read  func(ctx context.Context) (int64, error)
	close func()
}

func (l *Lab) openAccount(ctx context.Context, job crew.Guard) (*account, error) {
	books := job.Entrant.Books
	db, err := database.SQL(ctx, books.Server, books.Address, 1)
	if err != nil {
		return nil, err
	}
	insert, query := "INSERT INTO bench_accounts (name, number) VALUES (?, 0)",
		"SELECT number FROM bench_accounts WHERE name = ?"
	if books.Server == contest.PostgreSQL {
		insert, query = "INSERT INTO bench_accounts (name, number) VALUES ($1, 0)",
			"SELECT number FROM bench_accounts WHERE name = $1"
	}
	if _, err := db.ExecContext(ctx, insert, job.Account); err != nil {
		_ = db.Close()
		return nil, err
	}
	return &account{
		read: func(ctx context.Context) (number int64, err error) {
			return number, db.QueryRowContext(ctx, query, job.Account).Scan(&number)
		},
		close: func() { _ = db.Close() },
	}, nil
}
