package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed unpack.sh
var unpackScript string

// Packages are packages of Debian.
type Packages struct {
	Suite     string
	Names     []string
	Libraries bool // with all libraries that they need, so that they run on other releases too
}

// packages are the packages with a database of this kind.
func (k Kind) packages() Packages {
	switch k {
	case Postgres15:
		return Packages{"bookworm", []string{"postgresql-15", "postgresql-client-15"}, true}
	case Postgres18:
		return Packages{"sid", []string{"postgresql-18", "postgresql-client-18"}, true}
	case MySQL:
		return Packages{"sid", []string{"mysql-server-core"}, true}
	}
	return Packages{"bookworm", []string{"mariadb-server-core", "mariadb-client-core", "galera-4"}, true}
}

// unpacked downloads and unpacks packages, unless the cache has them. It returns the root of their
// tree.
func unpacked(ctx context.Context, name string, from Packages) (root string, err error) {
	for _, tool := range []string{"bash", "apt-get", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("this needs Debian or a release made of it: %w", err)
		}
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	root = filepath.Join(cache, strings.ReplaceAll(strings.ToLower(name), " ", "-")+"-"+from.Suite)
	if err := makeReadable(cache); err != nil {
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
	unpack := exec.CommandContext(ctx, "bash", append([]string{
		"-c", unpackScript, "unpack", from.Suite, root + ".new", strconv.FormatBool(from.Libraries),
	}, from.Names...)...)
	text, err := unpack.CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("unpack %s: %w: %s", strings.Join(from.Names, " "), err, lastLines(text)),
			os.RemoveAll(root+".new"))
	}
	return root, os.Rename(root+".new", root)
}

// makeReadable creates a folder, unless it exists. Everybody may read it, whatever the umask is:
// servers that root starts run as nobody.
func makeReadable(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.Chmod(folder, 0o755)
}

// unpackedOrigin tells people where such programs are.
func unpackedOrigin(suite, root string) string {
	return fmt.Sprintf("Debian packages of %s in %s", suite, root)
}

// unpackedPrograms are those of Debian packages. The script run in their tree starts a program with
// the libraries of the same tree.
func unpackedPrograms(ctx context.Context, kind Kind) (programs, error) {
	from := kind.packages()
	root, err := unpacked(ctx, kind.String(), from)
	if err != nil {
		return programs{}, err
	}
	run := filepath.Join(root, "run")
	p := programs{origin: unpackedOrigin(from.Suite, root), root: root}
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
			"--character-sets-dir=" + root + "/usr/share/mysql/charsets",
			"--plugin-dir=" + root + "/usr/lib/mysql/plugin",
		}
	case MariaDB:
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
