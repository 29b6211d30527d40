package servers

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are the server programs of one kind, and how to start them.
type programs struct {
	origin string
	// server and setup are command lines without options: the server, and what creates its data
	// folder.
	server, setup []string
	backup        []string // what copies a running PostgreSQL for a standby
	options       []string // which this installation needs in every call
	root          string   // of the tree that they are in; empty for that of the machine
}

// installed finds the programs of a kind on the machine.
func installed(kind Kind) (programs, error) {
	switch kind {
	case Postgres15, Postgres18:
		return installedPostgres(strings.TrimPrefix(kind.String(), "PostgreSQL "))
	case MySQL:
		return installedMySQL()
	case MariaDB:
		return installedMariaDB()
	case Redis:
		return installedProgram("redis-server")
	case ZooKeeper:
		server, err := zooKeeperIn("/" + jarFolder)
		return programs{origin: "/" + jarFolder, server: server}, err
	}
	return installedProgram("etcd")
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

func installedMariaDB() (programs, error) {
	server, version, err := lookUp("mariadbd")
	setup, _, setupErr := lookUp("mariadb-install-db")
	if err := errors.Join(err, setupErr); err != nil || !strings.Contains(version, "MariaDB") {
		return programs{}, errors.Join(err, errors.New("no mariadbd"))
	}
	return programs{origin: server, server: []string{server}, setup: []string{setup}}, nil
}

func installedProgram(name string) (programs, error) {
	path, _, err := lookUp(name)
	return programs{origin: path, server: []string{path}}, err
}

// lookUp finds a program in the path, and in sbin, which plain users do not have in it.
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
