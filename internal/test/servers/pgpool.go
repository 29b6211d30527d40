package servers

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
)

// StartPgpool starts a private pgpool-II before a PostgreSQL server. It gives each of at most so
// many clients a session of the server's, for as long as the client stays. Settings have the form
// "name = value", as in its configuration. They come last, so they win.
func StartPgpool(ctx context.Context, server *Server, clients int, settings ...string) (*Server, error) {
	target, at, err := inFrontOf(server, "pgpool-II")
	if err != nil {
		return nil, err
	}
	program, origin, err := findPgpool(ctx)
	if err != nil {
		return nil, fmt.Errorf("no pgpool-II to run: %w", err)
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		file := filepath.Join(folder, "pgpool.conf")
		return plan{
			kind: server.Kind, name: "pgpool-II before " + server.Name, origin: origin,
			run:   append(program, "-n", "-f", file, "-F", filepath.Join(folder, "pcp.conf")),
			files: map[string]string{file: pgpoolFile(target, folder, port, clients, settings)}, dsn: at(port),
			answers: server.Kind.answers, ending: syscall.SIGINT,
		}
	})
}

// pgpoolFile is the configuration, for a server that trusts its clients.
func pgpoolFile(target *url.URL, folder string, port, clients int, settings []string) string {
	at := target.Port()
	if at == "" {
		at = "5432"
	}
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	lines := append([]string{
		"backend_clustering_mode = 'raw'", "backend_hostname0 = " + quote(target.Hostname()), "backend_port0 = " + at,
		"listen_addresses = '127.0.0.1'", fmt.Sprintf("port = %d", port), "socket_dir = " + quote(folder),
		"pcp_listen_addresses = ''", fmt.Sprintf("pcp_port = %d", port), "pcp_socket_dir = " + quote(folder),
		fmt.Sprintf("num_init_children = %d", clients), "max_pool = 1", "listen_backlog_multiplier = 10",
		// Else the end of one session of the server's takes the server out of service.
		"failover_on_backend_error = off", "load_balance_mode = off", "memory_cache_enabled = off",
		"pid_file_name = " + quote(filepath.Join(folder, "pgpool.pid")), "logdir = " + quote(folder),
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}

func findPgpool(ctx context.Context) (program []string, origin string, err error) {
	if path, _, err := lookUp("pgpool"); err == nil {
		return []string{path}, path, nil
	}
	from := Packages{"bookworm", []string{"pgpool2"}, true}
	root, err := unpacked(ctx, "pgpool-II", from)
	if err != nil {
		return nil, "", err
	}
	return []string{filepath.Join(root, "run"), "usr/sbin/pgpool"}, unpackedOrigin(from.Suite, root), nil
}
