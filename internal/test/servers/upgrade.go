package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Upgrade moves all that a private PostgreSQL has to one of a later version, by pg_upgrade. The
// former one is shut down, and later serves the data at its own address.
func Upgrade(ctx context.Context, former, later *Server) error {
	from, err := former.private()
	if err != nil {
		return err
	}
	to, err := later.private()
	if err != nil {
		return err
	}
	for _, s := range []*Server{former, later} {
		if err := s.toProcess(func(p *process) error { return p.end(syscall.SIGINT) }); err != nil {
			return err
		}
	}
	programs, err := privatePrograms(ctx, later.Kind)
	if err != nil {
		return err
	}
	programs.fresh = ""
	setup := programs.initialize(later.Kind, dataIn(to.folder))
	if later.Kind == Postgres18 { // it makes checksums of pages unless told, and both must be alike
		setup = append(setup, "--no-data-checksums")
	}
	if err := to.rebuild(ctx, setup); err != nil {
		return err
	}
	formerBin, err := binFolder(ctx, former)
	if err != nil {
		return err
	}
	bin, err := binFolder(ctx, later)
	if err != nil {
		return err
	}
	if err := to.setUp(ctx, []string{
		filepath.Join(bin, "pg_upgrade"), "-b", formerBin, "-B", bin, "-d", dataIn(from.folder), "-D",
		dataIn(to.folder), "-U", "postgres", "--socketdir", to.folder, "--no-sync",
	}); err != nil {
		return err
	}
	return later.Restart(ctx)
}

// Restore moves the database of one PostgreSQL to another by pg_dump of the later version and psql.
func Restore(ctx context.Context, from, to *Server) error {
	own, err := to.private()
	if err != nil {
		return err
	}
	bin, err := binFolder(ctx, to)
	if err != nil {
		return err
	}
	file := filepath.Join(own.folder, "dump.sql")
	return errors.Join(own.setUp(ctx, []string{filepath.Join(bin, "pg_dump"), "-d", from.DSN, "-f", file}),
		own.setUp(ctx, []string{filepath.Join(bin, "psql"), "-v", "ON_ERROR_STOP=1", "-q", "-d", to.DSN, "-f", file}))
}

// binFolder is the folder with the programs of a private PostgreSQL. Those of an unpacked tree run
// on the libraries of the tree only, so each has a script in a folder of this server.
func binFolder(ctx context.Context, s *Server) (string, error) {
	programs, err := privatePrograms(ctx, s.Kind)
	if err != nil || programs.root == "" {
		return filepath.Dir(programs.server[0]), err
	}
	inTree := "usr/lib/postgresql/" + s.Kind.version() + "/bin"
	all, err := os.ReadDir(filepath.Join(programs.root, inTree))
	if err != nil {
		return "", fmt.Errorf("%s has no further programs: %w", s.Origin, err)
	}
	folder := filepath.Join(s.own.folder, "bin")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	for _, program := range all {
		text := "#!/bin/sh\nexec " + programs.server[0] + ` "$@"` + "\n" // a script already
		if program.Name() != "postgres" {
			text = fmt.Sprintf(inTreeScript, programs.root, filepath.Join(inTree, program.Name()))
		}
		if err := os.WriteFile(filepath.Join(folder, program.Name()), []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// inTreeScript runs a program on the libraries of its tree. It is told the name of the script: the
// programs look for each other beside themselves, and must find the other scripts.
const inTreeScript = `#!/bin/sh
r=%s
exec "$r"/usr/lib/*-linux-gnu*/ld-linux-*.so.* --library-path "$(echo "$r"/usr/lib/*-linux-gnu*)" \
	--argv0 "$0" "$r/%s" "$@"
`
