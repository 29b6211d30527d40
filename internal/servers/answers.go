package servers

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// startUp is how long a server may take to answer.
const startUp = 60 * time.Second

// probe is a request that fails as long as a server cannot do it yet.
type probe func(context.Context) error

// answers is the probe of a server of this kind.
func (k Kind) answers(dsn string) probe {
	switch k {
	case Redis:
		return line(dsn, "PING\r\nQUIT\r\n", "+PONG")
	case ZooKeeper:
		return line(dsn, "srvr", "Mode:") // it answers to no other word unless told to
	case Etcd:
		return page(dsn + "/health")
	}
	return statement(k.driver(), dsn, "SELECT 1")
}

// creates is the probe of a new server. A try whose answer came too late may have done it.
func (k Kind) creates(dsn string) probe {
	if !k.postgres() {
		return statement(k.driver(), dsn, "CREATE DATABASE IF NOT EXISTS txlock")
	}
	return func(ctx context.Context) error {
		err := statement(k.driver(), dsn, "CREATE DATABASE txlock")(ctx)
		if failed := (*pgconn.PgError)(nil); errors.As(err, &failed) && failed.Code == pgDuplicateDatabase {
			return nil
		}
		return err
	}
}

// pgDuplicateDatabase is PostgreSQL's duplicate_database.
const pgDuplicateDatabase = "42P04"

func statement(driver, dsn, text string) probe {
	return func(ctx context.Context) error {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, text)
		return err
	}
}

// line succeeds if a line of what comes back begins with a text. The server has to close the
// connection, which ends what comes back.
func line(address, request, begin string) probe {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			return err
		}
		var all []string
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), begin) {
				return nil
			}
			all = append(all, lines.Text())
		}
		if lines.Err() != nil {
			return lines.Err()
		}
		return fmt.Errorf("%q was answered with %q", request, all)
	}
}

func page(url string) probe {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		request.Close = true // leaves no connection behind
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
}

// wait tries until the server answers.
func (p probe) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	return poll(ctx, 50*time.Millisecond, func() error {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return p(once)
	})
}

// poll tries something again and again until it succeeds.
func poll(ctx context.Context, every time.Duration, try func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
