package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Software describes a server that is no database of this package, such as those with which the
// benchmark compares. It starts as it ships.
type Software struct {
	Name     string
	Variable string   // the environment variable with the address of a running one
	Needs    []string // programs of the machine without which it cannot run
	Packages Packages
	Image    Image
	Ending   syscall.Signal // makes it shut down at once and leave nothing behind
	// Find returns the command line of the program: of the machine, or, if root is not empty, of
	// the unpacked packages there.
	Find func(root string) ([]string, error)
	// Run says how to run a private instance, with its files in a folder and listening on a port of
	// 127.0.0.1.
	Run func(folder string, port int) Run
	// Answers returns nil if the server at an address answers.
	Answers func(ctx context.Context, dsn string) error
}

// Run says how a private instance is run.
type Run struct {
	Arguments []string          // after the command line of the program
	Files     map[string]string // to be written before, path to text
	DSN       string
}

// Start finds or starts the server, in the same order as databases.
func (s Software) Start(ctx context.Context) (*Server, error) {
	return firstOf(ctx, s.Name, s.Variable,
		func(ctx context.Context) (*Server, error) {
			line, err := s.find("")
			if err != nil {
				return nil, err
			}
			return s.start(ctx, line, line[0])
		},
		func(ctx context.Context) (*Server, error) { return startContainer(ctx, s.Name, s.Image, s.Answers) },
		func(ctx context.Context) (*Server, error) {
			if err := s.needs(); err != nil {
				return nil, err
			}
			root, err := unpacked(ctx, s.Name, s.Packages)
			if err != nil {
				return nil, err
			}
			line, err := s.find(root)
			if err != nil {
				return nil, err
			}
			return s.start(ctx, line, unpackedOrigin(s.Packages.Suite, root))
		})
}

func (s Software) find(root string) ([]string, error) {
	if err := s.needs(); err != nil {
		return nil, err
	}
	return s.Find(root)
}

func (s Software) needs() error {
	for _, program := range s.Needs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s needs %s: %w", s.Name, program, err)
		}
	}
	return nil
}

func (s Software) start(ctx context.Context, line []string, origin string) (*Server, error) {
	return startPrivate(ctx, "", func(folder string, port int) plan {
		run := s.Run(folder, port)
		return plan{
			name: s.Name, origin: origin, run: append(line, run.Arguments...), files: run.Files, dsn: run.DSN,
			answers: s.Answers, ending: s.Ending,
		}
	})
}

// ProgramOf finds a program of the machine, or in a tree of packages, whose script run starts it.
func ProgramOf(name string) func(root string) ([]string, error) {
	return func(root string) ([]string, error) {
		if root != "" {
			return []string{filepath.Join(root, "run"), "usr/bin/" + name}, nil
		}
		path, err := exec.LookPath(name)
		return []string{path}, err
	}
}

// programs are the programs of one installation of a database.
type programs struct {
	origin  string
	server  []string // command line of the server, without options
	setup   []string // command line that creates its data folder, without options
	backup  []string // command line that copies a running PostgreSQL for a standby, without options
	fresh   string   // a data folder to be copied; empty: there is none
	options []string // needed in every call
	root    string   // of the unpacked tree; empty for programs of the machine
}

// installed finds the programs of a kind on the machine.
func installed(kind Kind) (programs, error) {
	switch {
	case kind.Postgres():
		return installedPostgres(kind.version())
	case kind.MariaDB():
		return installedMariaDB(kind.version())
	}
	return installedMySQL()
}

func installedPostgres(major string) (programs, error) {
	folders := []string{"/usr/lib/postgresql/" + major + "/bin", "/usr/pgsql-" + major + "/bin"}
	if path, err := exec.LookPath("postgres"); err == nil {
		folders = append(folders, filepath.Dir(path))
	}
	for _, folder := range folders {
		server := filepath.Join(folder, "postgres")
		version, err := versionOf(server)
		if err == nil && strings.Contains(version, "(PostgreSQL) "+major) {
			return programs{
				origin: folder, server: []string{server}, setup: []string{filepath.Join(folder, "initdb")},
				backup: []string{filepath.Join(folder, "pg_basebackup")},
			}, nil
		}
	}
	return programs{}, fmt.Errorf("no postgres of version %s in %s", major, strings.Join(folders, ", "))
}

func installedMySQL() (programs, error) {
	server, version, err := lookUp("mysqld")
	if err != nil || strings.Contains(version, "MariaDB") || strings.Contains(version, "Ver 5.") {
		return programs{}, errors.Join(err, errors.New("no mysqld of MySQL 8 or later"))
	}
	return programs{origin: server, server: []string{server}, setup: []string{server}}, nil
}

// installedMariaDB takes any version if none is named.
func installedMariaDB(named string) (programs, error) {
	server, version, err := lookUp("mariadbd")
	setup, _, setupErr := lookUp("mariadb-install-db")
	if err := errors.Join(err, setupErr); err != nil || !strings.Contains(version, "Ver "+named) ||
		!strings.Contains(version, "MariaDB") {
		return programs{}, errors.Join(err, errors.New("no mariadbd "+named))
	}
	return programs{origin: server, server: []string{server}, setup: []string{setup}}, nil
}

// lookUp finds a program in the path, or in sbin, which is not in the path of plain users.
func lookUp(name string) (path, version string, err error) {
	path, err = exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			return "", "", err
		}
	}
	version, _ = versionOf(path)
	return path, version, nil
}

func versionOf(server string) (string, error) {
	text, err := exec.Command(server, "--version").Output()
	return string(text), err
}
