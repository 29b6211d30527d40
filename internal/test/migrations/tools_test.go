// Package migrations_test runs migration tools under txlock run, as docs/migrations.md advises. It
// is a module of its own, because the tools need much that nobody else does.
package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	_ "github.com/amacneil/dbmate/v2/pkg/driver/postgres"
	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	tern "github.com/jackc/tern/v2/migrate"
	"github.com/pressly/goose/v3"
)

// tool is a migration tool, played by this test binary: that is the library behind the tool's own
// command, with that command's defaults.
type tool struct {
	name string
	up   func(dsn, folder string) error
	// file is the name and the text of a migration.
	file func(version int, text string) (name, content string)
	// version is the query for the highest version that is done.
	version string
}

var tools = []tool{
	{
		// The command goose takes no lock.
		name: "goose",
		up: func(dsn, folder string) error {
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				return err
			}
			defer db.Close()
			provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS(folder))
			if err != nil {
				return err
			}
			_, err = provider.Up(context.Background())
			return err
		},
		file: func(version int, text string) (string, string) {
			head := "-- +goose Up\n"
			if strings.Contains(text, "CONCURRENTLY") {
				head = "-- +goose NO TRANSACTION\n" + head
			}
			return fmt.Sprintf("%05d_step.sql", version), head + text
		},
		version: "SELECT MAX(version_id) FROM goose_db_version WHERE is_applied",
	},
	{
		// The command migrate takes an advisory lock for the session, in a statement that waits.
		name: "golang-migrate",
		up: func(dsn, folder string) error {
			m, err := migrate.New("file://"+folder, strings.Replace(dsn, "postgres://", "pgx5://", 1))
			if err != nil {
				return err
			}
			if err = m.Up(); errors.Is(err, migrate.ErrNoChange) {
				err = nil
			}
			files, database := m.Close()
			return errors.Join(err, files, database)
		},
		file: func(version int, text string) (string, string) {
			return fmt.Sprintf("%06d_step.up.sql", version), text
		},
		version: "SELECT version FROM schema_migrations WHERE NOT dirty",
	},
	{
		// The command dbmate takes no lock. Its database/sql driver is lib/pq.
		name: "dbmate",
		up: func(dsn, folder string) error {
			u, err := url.Parse(dsn)
			if err != nil {
				return err
			}
			db := dbmate.New(u)
			db.FS, db.MigrationsDir, db.AutoDumpSchema, db.Log = os.DirFS(folder), []string{"."}, false, io.Discard
			return db.Migrate()
		},
		file: func(version int, text string) (string, string) {
			head := "-- migrate:up"
			if strings.Contains(text, "CONCURRENTLY") {
				head += " transaction:false"
			}
			return fmt.Sprintf("%d_step.sql", version), head + "\n" + text + "\n-- migrate:down\n"
		},
		version: "SELECT COUNT(*) FROM schema_migrations",
	},
	{
		// The command tern takes an advisory lock for the session, in a statement that waits.
		name: "tern",
		up: func(dsn, folder string) error {
			ctx := context.Background()
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			m, err := tern.NewMigrator(ctx, conn, "public.schema_version")
			if err == nil {
				err = m.LoadMigrations(os.DirFS(folder))
			}
			if err == nil {
				err = m.Migrate(ctx)
			}
			return err
		},
		file: func(version int, text string) (string, string) {
			if strings.Contains(text, "CONCURRENTLY") {
				text = "---- tern: disable-tx ----\n" + text
			}
			return fmt.Sprintf("%03d_step.sql", version), text
		},
		version: "SELECT version FROM schema_version",
	},
}

// folder writes migrations for the tool. The first one makes rows, the second one waits at the
// gate, the third one is an index, which waits for every older snapshot in the database, the fourth
// one makes a row more: rows show what was done twice.
func (c tool) folder(in string) error {
	for i, text := range []string{
		"CREATE TABLE orders AS SELECT id, id % 100 AS customer FROM generate_series(1, 10000) AS id;",
		"INSERT INTO orders SELECT COUNT(*) + 10001, 7 FROM gate;",
		"CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);",
		"INSERT INTO orders VALUES (10002, 7);",
	} {
		name, content := c.file(i+1, text)
		if err := os.WriteFile(filepath.Join(in, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Set, they make this test binary a tool.
const (
	toolVariable   = "TXLOCK_TEST_TOOL"
	folderVariable = "TXLOCK_TEST_FOLDER"
)

// beTool migrates the database in TXLOCK_DSN, which txlock run passes on.
func beTool(name string) int {
	for _, c := range tools {
		if c.name == name {
			if err := c.up(os.Getenv("TXLOCK_DSN"), os.Getenv(folderVariable)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
	return 0
}
