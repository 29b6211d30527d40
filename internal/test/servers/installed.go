package servers

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

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
