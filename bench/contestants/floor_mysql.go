package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// floorMySQL uses connections on which transactions begin by themselves, like mysql.Open.
func floorMySQL(behind, end string) opening {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		db, err := openMySQL(ctx, env, func(config *mysql.Config) {
			config.MultiStatements = true
			config.Params = map[string]string{"autocommit": "0"}
		})
		if err != nil {
			return nil, err
		}
		return holdOnConnection(db, behind, end), nil
	}
}

func holdOnConnection(db *sql.DB, behind, end string) contest.Client {
	return holdFunc{func(ctx context.Context, key string, work contest.Work) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := selectSlot(ctx, conn, key, behind); err != nil {
			return err
		}
		ending := end
		failed := work(ctx, nil)
		if failed != nil {
			ending = "ROLLBACK"
		}
		_, err = conn.ExecContext(context.WithoutCancel(ctx), ending)
		return errors.Join(failed, err)
	}, func() { _ = db.Close() }}
}

// floorMySQLPool uses any connection of a pool, like mysql.New.
func floorMySQLPool(end func(*tx) error) opening {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		db, err := pools.SQL(ctx, contest.MySQL, env.Address(), env.Contenders)
		if err != nil {
			return nil, err
		}
		return holdFunc{func(ctx context.Context, key string, work contest.Work) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := selectSlot(ctx, tx, key, ""); err != nil {
				return err
			}
			if err := work(ctx, nil); err != nil {
				return err
			}
			return end(tx)
		}, func() { _ = db.Close() }}, nil
	}
}

func selectSlot(ctx context.Context, on interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, key, behind string,
) error {
	query := fmt.Sprintf("SELECT slot FROM %s WHERE slot = %d AND %s FOR UPDATE%s", floorTable, slotOf(key),
		floorSelect, behind)
	rows, err := on.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		for rows.Next() {
		}
		if !rows.NextResultSet() {
			return rows.Err()
		}
	}
}
