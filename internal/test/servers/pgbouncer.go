package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// StartPgBouncer starts a private PgBouncer before a PostgreSQL server. It pools by transaction,
// and prepared statements work. Settings have the form "name=value", as in section [pgbouncer] of
// its configuration. They come last, so they win.
func StartPgBouncer(ctx context.Context, server *Server, settings ...string) (*Server, error) {
	target, at, err := inFrontOf(server, "PgBouncer")
	if err != nil {
		return nil, err
	}
	program, origin, err := findPgBouncer(ctx)
	if err != nil {
		return nil, fmt.Errorf("no PgBouncer to run: %w", err)
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		file := filepath.Join(folder, "pgbouncer.ini")
		return plan{
			kind: server.Kind, name: "PgBouncer before " + server.Name, origin: origin, run: append(program, file),
			files: map[string]string{file: pgBouncerFile(target, port, settings)}, dsn: at(port),
			answers: server.Kind.answers, ending: quickly,
		}
	})
}

// inFrontOf is the address of a PostgreSQL server that a pooler stands in front of, and the
// pooler's, by its port.
func inFrontOf(server *Server, pooler string) (target *url.URL, at func(port int) string, err error) {
	if !server.Kind.Postgres() {
		return nil, nil, fmt.Errorf("%s is for PostgreSQL, not for %s", pooler, server.Name)
	}
	if target, err = url.Parse(server.DSN); err != nil {
		return nil, nil, err
	}
	return target, func(port int) string {
		address := *target
		address.Host = fmt.Sprintf("127.0.0.1:%d", port)
		address.RawQuery = "sslmode=disable"
		return address.String()
	}, nil
}

// pgBouncerFile is the configuration. Any client may connect. It acts as the user in the address of
// the server.
func pgBouncerFile(target *url.URL, port int, settings []string) string {
	at := target.Port()
	if at == "" {
		at = "5432"
	}
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	to := fmt.Sprintf("* = host=%s port=%s user=%s", quote(target.Hostname()), at, quote(target.User.Username()))
	if password, ok := target.User.Password(); ok {
		to += " password=" + quote(password)
	}
	lines := append([]string{
		"[databases]", to, "[pgbouncer]", "listen_addr=127.0.0.1", fmt.Sprintf("listen_port=%d", port),
		"unix_socket_dir=",
		"auth_type=any", "pool_mode=transaction", "default_pool_size=20", "max_client_conn=1000",
		"max_prepared_statements=200",
		"ignore_startup_parameters=extra_float_digits", "log_connections=0", "log_disconnections=0",
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}

// findPgBouncer finds a PgBouncer of version 1.21 or later: earlier ones do not track prepared
// statements.
func findPgBouncer(ctx context.Context) (program []string, origin string, err error) {
	path, version, err := lookUp("pgbouncer")
	if err == nil {
		var major, minor int
		if _, err = fmt.Sscanf(version, "PgBouncer %d.%d", &major, &minor); err == nil && (major > 1 || minor >= 21) {
			return []string{path}, path, nil
		}
		err = errors.Join(err, fmt.Errorf("%s is older than 1.21", path))
	}
	from := Packages{"sid", []string{"pgbouncer"}, true}
	root, unpackErr := unpacked(ctx, "PgBouncer", from)
	if unpackErr != nil {
		return nil, "", errors.Join(err, unpackErr)
	}
	return []string{filepath.Join(root, "run"), "usr/sbin/pgbouncer"}, unpackedOrigin(from.Suite, root), nil
}
