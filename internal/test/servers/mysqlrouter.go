package servers

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

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
	found, root, err := toolOf(ctx, "mysqlrouter", []string{"--version"}, "MySQL Router",
		Packages{"sid", []string{"mysql-router"}, true}, "usr/bin/mysqlrouter")
	if err != nil {
		return nil, fmt.Errorf("no MySQL Router to run: %w", err)
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		file := filepath.Join(folder, "mysqlrouter.conf")
		lines := []string{
			"[DEFAULT]", "logging_folder=", "runtime_folder=" + folder, "data_folder=" + folder,
			"max_total_connections=1000", "[logger]", "level=WARNING",
			"[connection_pool]", fmt.Sprintf("max_idle_server_connections=%d", idle), "idle_timeout=60",
			"[routing:classic]", "protocol=classic", "routing_strategy=first-available", "destinations=" + address.Addr,
			"bind_address=127.0.0.1", fmt.Sprintf("bind_port=%d", port), "max_connections=1000",
			"client_ssl_mode=DISABLED", "server_ssl_mode=DISABLED",
		}
		if root != "" { // of unpacked packages
			lines[0] += "\nplugin_folder=" + filepath.Join(root, "usr/lib/mysqlrouter/plugin")
		}
		text := strings.Join(append(lines, settings...), "\n") + "\n"
		through := address.Clone()
		through.Addr = fmt.Sprintf("127.0.0.1:%d", port)
		return plan{
			kind: server.Kind, name: "MySQL Router before " + server.Name, origin: found.Origin,
			run:   append(found.Line, "-c", file),
			files: map[string]string{file: text}, dsn: through.FormatDSN(),
			answers: server.Kind.answers, ending: syscall.SIGTERM,
		}
	})
}
