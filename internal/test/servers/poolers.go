package servers

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

// pgBouncer is of version 1.21 or later: earlier ones do not track prepared statements.
var pgBouncer = front{
	name: "PgBouncer", program: "usr/sbin/pgbouncer", from: Packages{"sid", []string{"pgbouncer"}, true},
	fits: func(version string) bool {
		var major, minor int
		_, err := fmt.Sscanf(version, "PgBouncer %d.%d", &major, &minor)
		return err == nil && (major > 1 || minor >= 21)
	},
	ending: quickly,
}

// StartPgBouncer starts a private PgBouncer before a PostgreSQL server. It pools by transaction,
// and prepared statements work. Any client may connect, and acts as the user in the address of the
// server. Settings have the form "name=value", as in section [pgbouncer] of its configuration. They
// come last, so they win.
func StartPgBouncer(ctx context.Context, server *Server, settings ...string) (*Server, error) {
	target, at, err := pgBouncer.inFrontOf(server)
	if err != nil {
		return nil, err
	}
	to := fmt.Sprintf("* = host=%s port=%s user=%s", quoted(target.Hostname()), target.Port(),
		quoted(target.User.Username()))
	if password, ok := target.User.Password(); ok {
		to += " password=" + quoted(password)
	}
	return pgBouncer.start(ctx, facing{
		kind: server.Kind, of: server.Name, dsn: at,
		line: func(path string) []string { return []string{path} },
		file: func(_, _ string, port int) string {
			return textOf([]string{
				"[databases]", to, "[pgbouncer]", "listen_addr=127.0.0.1", fmt.Sprintf("listen_port=%d", port),
				"unix_socket_dir=",
				"auth_type=any", "pool_mode=transaction", "default_pool_size=20", "max_client_conn=1000",
				"max_prepared_statements=200",
				"ignore_startup_parameters=extra_float_digits", "log_connections=0", "log_disconnections=0",
			}, settings)
		},
	})
}

// textOf is the text of a configuration. Of two lines for one setting the last wins.
func textOf(all, settings []string) string {
	return strings.Join(append(all, settings...), "\n") + "\n"
}

var odyssey = front{
	name: "Odyssey", program: "usr/bin/odyssey", from: Packages{"sid", []string{"odyssey"}, true},
	ending: syscall.SIGTERM,
}

// StartOdyssey starts a private Odyssey before a PostgreSQL server. It pools by transaction, and
// gives each of at most 150 transactions a session of the server's. Any client may connect, and
// acts as the user in the address of the server. Settings have the form "name value", as for a user
// in its configuration.
func StartOdyssey(ctx context.Context, server *Server, settings ...string) (*Server, error) {
	target, at, err := odyssey.inFrontOf(server)
	if err != nil {
		return nil, err
	}
	user := []string{
		`authentication "none"`, `storage "server"`, fmt.Sprintf("storage_user %q", target.User.Username()),
		`pool "transaction"`, "pool_size 150", "pool_discard no", "client_fwd_error yes",
	}
	if password, ok := target.User.Password(); ok {
		user = append(user, fmt.Sprintf("storage_password %q", password))
	}
	return odyssey.start(ctx, facing{
		kind: server.Kind, of: server.Name, dsn: at,
		line: func(path string) []string { return []string{path} },
		file: func(_, _ string, port int) string {
			return fmt.Sprintf(odysseyFile, port, target.Hostname(), target.Port(), textOf(user, settings))
		},
	})
}

const odysseyFile = `daemonize no
log_to_stdout yes
log_format "%%p %%t %%l [%%i %%s] (%%c) %%m\n"
log_session no
workers 2
coroutine_stack_size 24
listen {
	host "127.0.0.1"
	port %d
}
storage "server" {
	type "remote"
	host %q
	port %s
}
database default {
	user default {
		%s
	}
}
`

var pgpool = front{
	name: "pgpool-II", program: "usr/sbin/pgpool", from: Packages{"bookworm", []string{"pgpool2"}, true},
	ending: syscall.SIGINT,
}

// StartPgpool starts a private pgpool-II before a PostgreSQL server that trusts its clients. It
// gives each of at most so many clients a session of the server's, for as long as the client stays.
func StartPgpool(ctx context.Context, server *Server, clients int) (*Server, error) {
	target, at, err := pgpool.inFrontOf(server)
	if err != nil {
		return nil, err
	}
	return pgpool.start(ctx, facing{
		kind: server.Kind, of: server.Name, dsn: at,
		line: func(path string) []string { return []string{"-n", "-f", path, "-F", path + ".pcp"} },
		file: func(_, folder string, port int) string {
			return textOf([]string{
				"backend_clustering_mode = 'raw'", "backend_hostname0 = " + quoted(target.Hostname()),
				"backend_port0 = " + target.Port(), "listen_addresses = '127.0.0.1'", fmt.Sprintf("port = %d", port),
				"socket_dir = " + quoted(folder),
				"pcp_listen_addresses = ''", fmt.Sprintf("pcp_port = %d", port), "pcp_socket_dir = " + quoted(folder),
				fmt.Sprintf("num_init_children = %d", clients), "max_pool = 1", "listen_backlog_multiplier = 10",
				// Else the end of one session of the server's takes the server out of service.
				"failover_on_backend_error = off", "load_balance_mode = off", "memory_cache_enabled = off",
				"pid_file_name = " + quoted(filepath.Join(folder, "pgpool.pid")), "logdir = " + quoted(folder),
			}, nil)
		},
	})
}

var mysqlRouter = front{
	name: "MySQL Router", program: "usr/bin/mysqlrouter", from: Packages{"sid", []string{"mysql-router"}, true},
	ending: syscall.SIGTERM,
}

// StartMySQLRouter starts a private MySQL Router before a MySQL server. Of clients that have said
// goodbye it keeps so many idle sessions of the server's for the next ones. Settings have the form
// "name=value", as in section [routing] of its configuration.
func StartMySQLRouter(ctx context.Context, server *Server, idle int, settings ...string) (*Server, error) {
	if server.Kind != MySQL {
		return nil, fmt.Errorf("MySQL Router is for MySQL, not for %s", server.Name)
	}
	address, err := mysql.ParseDSN(server.DSN)
	if err != nil {
		return nil, err
	}
	return mysqlRouter.start(ctx, facing{
		kind: server.Kind, of: server.Name,
		line: func(path string) []string { return []string{"-c", path} },
		dsn: func(port int) string {
			through := address.Clone()
			through.Addr = fmt.Sprintf("127.0.0.1:%d", port)
			return through.FormatDSN()
		},
		file: func(root, folder string, port int) string {
			plugins := ""
			if root != "" { // of unpacked packages
				plugins = "plugin_folder=" + filepath.Join(root, "usr/lib/mysqlrouter/plugin")
			}
			return textOf([]string{
				"[DEFAULT]", plugins, "logging_folder=", "runtime_folder=" + folder, "data_folder=" + folder,
				"max_total_connections=1000", "[logger]", "level=WARNING",
				"[connection_pool]", fmt.Sprintf("max_idle_server_connections=%d", idle), "idle_timeout=60",
				"[routing:classic]", "protocol=classic", "routing_strategy=first-available",
				"destinations=" + address.Addr,
				"bind_address=127.0.0.1", fmt.Sprintf("bind_port=%d", port), "max_connections=1000",
				"client_ssl_mode=DISABLED", "server_ssl_mode=DISABLED",
			}, settings)
		},
	})
}
