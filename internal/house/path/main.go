// Command path makes warm calls of each verb, and leaves in FOLDER/VERB/NUMBER which code each call
// has run through. It is built with -cover -covermode=atomic.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/servers"

	"github.com/jackc/pgx/v5"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "path:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string) error {
	server, err := servers.Start(ctx, servers.Postgres15, servers.Options{})
	if err != nil {
		return err
	}
	defer server.Stop()
	driver, err := postgres.Open(ctx, server.DSN)
	if err != nil {
		return err
	}
	locks := txlock.New(driver)
	defer locks.Close()
	if err := locks.Install(ctx); err != nil {
		return err
	}
	nothing := func(context.Context, pgx.Tx) error { return nil }
	for _, verb := range []struct {
		name string
		call func() error
	}{
		{"Lock", func() error {
			lock, err := locks.Mutex("key").Lock(ctx)
			if err != nil {
				return err
			}
			return lock.Unlock(ctx)
		}},
		{"Do", func() error { return locks.Mutex("key").Do(ctx, nothing) }},
		{"Do in a Do", func() error {
			return locks.Mutex("key").Do(ctx, func(ctx context.Context, _ pgx.Tx) error {
				return locks.Mutex("other").Do(ctx, nothing)
			})
		}},
	} {
		for i := range 3 {
			if err := record(filepath.Join(folder, verb.name, strconv.Itoa(i)), verb.call); err != nil {
				return fmt.Errorf("%s: %w", verb.name, err)
			}
		}
	}
	return nil
}

// record counts the fourth call: by then connections, texts and prepared statements are there.
func record(folder string, call func() error) error {
	for range 3 {
		if err := call(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := coverage.WriteCountersDir(folder); err != nil {
		return err
	}
	return coverage.WriteMetaDir(folder)
}
