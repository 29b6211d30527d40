package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed unpack.sh
var unpackScript string

// packages are the Debian packages of a kind, and the suite that has them.
func (k Kind) packages() (suite string, names []string) {
	switch k {
	case Postgres15:
		return "bookworm", []string{"postgresql-15", "postgresql-client-15"}
	case Postgres18:
		return "sid", []string{"postgresql-18", "postgresql-client-18"}
	case MySQL:
		return "sid", []string{"mysql-server-core"}
	}
	return "bookworm", []string{"mariadb-server-core", "mariadb-client-core", "galera-4"}
}

// unpacked downloads packages of a suite, unless the cache has them, and unpacks them with all libraries that they need:
// they run on another release of Debian too. It returns the folder of their tree.
func unpacked(ctx context.Context, name, suite string, packages ...string) (root string, err error) {
	for _, tool := range []string{"bash", "apt-get", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("this needs Debian or a release made of it: %w", err)
		}
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	root = filepath.Join(cache, strings.ReplaceAll(strings.ToLower(name), " ", "-")+"-"+suite)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	guard, err := os.OpenFile(root+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if err := exclusively(guard); err != nil { // another process may be at it
		return "", err
	}
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	fmt.Fprintf(os.Stderr, "%s: fetching Debian packages into %s\n", name, root)
	unpack := exec.CommandContext(ctx, "bash", append([]string{"-c", unpackScript, "unpack", suite, root + ".new"}, packages...)...)
	text, err := unpack.CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("unpack %s: %w: %s", strings.Join(packages, " "), err, lastLines(text)), os.RemoveAll(root+".new"))
	}
	return root, os.Rename(root+".new", root)
}

// unpackedOrigin is how people are told of such programs.
func unpackedOrigin(suite, root string) string {
	return fmt.Sprintf("Debian packages of %s in %s", suite, root)
}

// unpackedPrograms run on the libraries of their own tree: the script run, which is in it, sees to that.
func unpackedPrograms(ctx context.Context, kind Kind) (programs, error) {
	suite, names := kind.packages()
	root, err := unpacked(ctx, kind.String(), suite, names...)
	if err != nil {
		return programs{}, err
	}
	run := filepath.Join(root, "run")
	p := programs{origin: unpackedOrigin(suite, root)}
	switch kind {
	case Postgres15, Postgres18:
		bin := "usr/lib/postgresql/" + strings.TrimPrefix(kind.String(), "PostgreSQL ") + "/bin/"
		p.server, p.setup = []string{filepath.Join(root, bin, "postgres")}, []string{run, bin + "initdb"}
		p.backup = []string{run, bin + "pg_basebackup"}
	case MySQL:
		p.server = []string{run, "usr/sbin/mysqld"}
		p.setup = p.server
		p.options = []string{
			"--basedir=" + root + "/usr", "--lc-messages-dir=" + root + "/usr/share/mysql",
			"--character-sets-dir=" + root + "/usr/share/mysql/charsets", "--plugin-dir=" + root + "/usr/lib/mysql/plugin",
		}
	default:
		share := root + "/usr/share/mysql"
		if _, err := os.Stat(root + "/usr/share/mariadb/english"); err == nil {
			share = root + "/usr/share/mariadb"
		}
		p.server = []string{run, "usr/sbin/mariadbd"}
		p.setup = []string{"env", "MYSQLD_BOOTSTRAP=" + root + "/mariadbd", root + "/usr/bin/mariadb-install-db"}
		p.options = []string{"--basedir=" + root + "/usr", "--lc-messages-dir=" + share}
	}
	return p, nil
}
