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

// packages are packages of a suite of Debian. With the libraries that they need they run on another
// release too.
type packages struct {
	suite     string
	names     []string
	libraries bool
}

// packages are what a server of this kind is in.
func (k Kind) packages() packages {
	switch k {
	case Postgres15:
		return packages{"bookworm", []string{"postgresql-15", "postgresql-client-15"}, true}
	case Postgres18:
		return packages{"sid", []string{"postgresql-18", "postgresql-client-18"}, true}
	case MySQL:
		return packages{"sid", []string{"mysql-server-core"}, true}
	case MariaDB:
		return packages{"bookworm", []string{"mariadb-server-core", "mariadb-client-core", "galera-4"}, true}
	case Redis:
		return packages{"sid", []string{"redis-server", "redis-tools"}, true} // the server is a link into the tools
	case ZooKeeper: // depends on a thousand jars, most of them for what it does not do here
		jars := []string{"libzookeeper-java", "libslf4j-java", "libdropwizard-metrics-java", "libsnappy-java"}
		return packages{"sid", jars, false}
	}
	return packages{"sid", []string{"etcd-server"}, true}
}

// unpacked downloads packages, unless the cache has them, and unpacks them. It returns the folder
// of their tree.
func unpacked(ctx context.Context, name string, from packages) (root string, err error) {
	for _, tool := range []string{"bash", "apt-get", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("this needs Debian or a release made of it: %w", err)
		}
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	root = filepath.Join(cache, strings.ReplaceAll(strings.ToLower(name), " ", "-")+"-"+from.suite)
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
		"-c", unpackScript, "unpack", from.suite, root + ".new", strconv.FormatBool(from.libraries),
	}, from.names...)...)
	text, err := unpack.CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("unpack %s: %w: %s", strings.Join(from.names, " "), err, lastLines(text)),
			os.RemoveAll(root+".new"))
	}
	return root, os.Rename(root+".new", root)
}

// makeReadable makes a folder, unless it is there, that everybody may read, whatever the umask:
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

// unpackedOrigin is how people are told of such programs.
func unpackedOrigin(suite, root string) string {
	return fmt.Sprintf("Debian packages of %s in %s", suite, root)
}

// unpackedPrograms run on the libraries of their own tree: the script run, which is in it, sees to
// that.
func unpackedPrograms(ctx context.Context, kind Kind) (programs, error) {
	if kind == ZooKeeper {
		if _, err := java(); err != nil {
			return programs{}, err
		}
	}
	from := kind.packages()
	root, err := unpacked(ctx, kind.String(), from)
	if err != nil {
		return programs{}, err
	}
	run := filepath.Join(root, "run")
	p := programs{origin: unpackedOrigin(from.suite, root), root: root}
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
	case Redis:
		p.server = []string{run, "usr/bin/redis-server"}
	case ZooKeeper:
		p.server, err = zooKeeperIn(filepath.Join(root, jarFolder))
	case Etcd:
		p.server = []string{run, "usr/bin/etcd"}
	}
	return p, err
}
