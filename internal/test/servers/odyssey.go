package servers

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
)

// StartOdyssey starts a private Odyssey before a PostgreSQL server. It pools by transaction, and
// gives each of at most 150 transactions a session of the server's. Settings have the form "name
// value", as for a user in its configuration.
func StartOdyssey(ctx context.Context, server *Server, settings ...string) (*Server, error) {
	target, at, err := inFrontOf(server, "Odyssey")
	if err != nil {
		return nil, err
	}
	found, _, err := toolOf(ctx, "odyssey", []string{"--version"}, "Odyssey",
		Packages{"sid", []string{"odyssey"}, true}, "usr/bin/odyssey")
	if err != nil {
		return nil, fmt.Errorf("no Odyssey to run: %w", err)
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		file := filepath.Join(folder, "odyssey.conf")
		return plan{
			kind: server.Kind, name: "Odyssey before " + server.Name, origin: found.Origin,
			run:   append(found.Line, file),
			files: map[string]string{file: odysseyFile(target, port, settings)}, dsn: at(port),
			answers: server.Kind.answers, ending: syscall.SIGTERM,
		}
	})
}

// odysseyFile is the configuration. Any client may connect. It acts as the user in the address of
// the server.
func odysseyFile(target *url.URL, port int, settings []string) string {
	user := []string{
		`authentication "none"`, `storage "server"`, fmt.Sprintf("storage_user %q", target.User.Username()),
		`pool "transaction"`, "pool_size 150", "pool_discard no", "client_fwd_error yes",
	}
	if password, ok := target.User.Password(); ok {
		user = append(user, fmt.Sprintf("storage_password %q", password))
	}
	return fmt.Sprintf(`daemonize no
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
`, port, target.Hostname(), cmp.Or(target.Port(), "5432"), strings.Join(append(user, settings...), "\n\t\t"))
}
