package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
)

// front is a program that stands in front of a server: a pooler, or a proxy.
type front struct {
	name    string
	program string // its path in the packages; on the machine it is looked for by its name
	from    Packages
	fits    func(version string) bool // whether one of the machine will do; nil: any
	ending  syscall.Signal
}

// facing is one of them before a server.
type facing struct {
	kind Kind
	of   string // the server's name
	// file is the text of the configuration. Root is the tree of packages; empty for a program of
	// the machine.
	file func(root, folder string, port int) string
	line func(path string) []string // the arguments by which the program reads it
	dsn  func(port int) string
}

// start starts it, private.
func (f front) start(ctx context.Context, to facing) (*Server, error) {
	program, root, origin, err := f.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("no %s to run: %w", f.name, err)
	}
	return startPrivate(ctx, "", func(folder string, port int) plan {
		path := filepath.Join(folder, "front.conf")
		return plan{
			kind: to.kind, name: f.name + " before " + to.of, origin: origin, run: append(program, to.line(path)...),
			files: map[string]string{path: to.file(root, folder, port)}, dsn: to.dsn(port),
			answers: to.kind.answers, ending: f.ending,
		}
	})
}

// find finds the program on the machine, or else unpacks it.
func (f front) find(ctx context.Context) (program []string, root, origin string, err error) {
	path, version, err := lookUp(filepath.Base(f.program))
	if err == nil && (f.fits == nil || f.fits(version)) {
		return []string{path}, "", path, nil
	}
	root, unpackErr := unpacked(ctx, f.name, f.from)
	if unpackErr != nil {
		return nil, "", "", errors.Join(err, unpackErr)
	}
	return []string{filepath.Join(root, "run"), f.program}, root, unpackedOrigin(f.from.Suite, root), nil
}

// inFrontOf is the address of a PostgreSQL server that a pooler stands in front of, and the
// pooler's, by its port.
func (f front) inFrontOf(server *Server) (target *url.URL, at func(port int) string, err error) {
	if !server.Kind.Postgres() {
		return nil, nil, fmt.Errorf("%s is for PostgreSQL, not for %s", f.name, server.Name)
	}
	if target, err = url.Parse(server.DSN); err != nil {
		return nil, nil, err
	}
	if target.Port() == "" {
		target.Host += ":5432"
	}
	return target, func(port int) string {
		address := *target
		address.Host = fmt.Sprintf("127.0.0.1:%d", port)
		address.RawQuery = "sslmode=disable"
		return address.String()
	}, nil
}

// quoted is text as the configurations of PgBouncer and pgpool-II quote it.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
