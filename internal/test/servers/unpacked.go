package servers

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

//go:embed unpack.sh
var unpackScript string

//go:embed unpack_npm.sh
var unpackNPMScript string

// Packages are packages of Debian, or of npm.
type Packages struct {
	Suite     string   // of Debian; or "npm-" and the version, which names the folder in the cache
	Names     []string // those of npm with @ and the version
	Libraries bool     // with all libraries that they need, so that they run on other releases too
}

// packages are the packages with a database of this kind.
func (k Kind) packages() Packages {
	switch k {
	case Postgres14:
		return postgresOfNPM("14.23.0-beta.17")
	case Postgres15:
		return Packages{"bookworm", []string{"postgresql-15", "postgresql-client-15"}, true}
	case Postgres16:
		return postgresOfNPM("16.14.0-beta.17")
	case Postgres17:
		return postgresOfNPM("17.10.0-beta.17")
	case Postgres18:
		return Packages{"sid", []string{"postgresql-18", "postgresql-client-18"}, true}
	case MySQL:
		return Packages{"sid", []string{"mysql-server-core"}, true}
	case MariaDB11:
		return Packages{"trixie", []string{"mariadb-server-core", "mariadb-client-core", "galera-4"}, true}
	}
	return Packages{"bookworm", []string{"mariadb-server-core", "mariadb-client-core", "galera-4"}, true}
}

const ofNPM = "npm-"

// postgresOfNPM is a PostgreSQL that Debian's releases do not have.
func postgresOfNPM(version string) Packages {
	architecture := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	name := "@embedded-postgres/linux-" + cmp.Or(architecture, runtime.GOARCH) + "@" + version
	return Packages{ofNPM + version, []string{name}, false} // what it needs is in it
}

// unpack is the command that unpacks them below root.
func (p Packages) unpack(ctx context.Context, root string) (*exec.Cmd, error) {
	script, needs, why := unpackScript, []string{"bash", "apt-get", "dpkg-deb", "tar"},
		"this needs Debian or a release made of it"
	if strings.HasPrefix(p.Suite, ofNPM) {
		script, needs, why = unpackNPMScript, []string{"bash", "npm", "node", "tar"}, "this needs npm"
	}
	for _, tool := range needs {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s: %w", why, err)
		}
	}
	arguments := []string{"-c", script, "unpack", p.Suite, root, strconv.FormatBool(p.Libraries)}
	return exec.CommandContext(ctx, "bash", append(arguments, p.Names...)...), nil
}

// unpacked downloads and unpacks packages, unless the cache has them. It returns the root of their
// tree.
func unpacked(ctx context.Context, name string, from Packages) (root string, err error) {
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
	unpack, err := from.unpack(ctx, root+".new")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "%s: fetching packages into %s\n", name, root)
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
	return fmt.Sprintf("packages of %s in %s", suite, root)
}

// unpackedPrograms are those of packages. The script run in the tree of Debian's starts a program
// with the libraries of the same tree; those of npm find theirs.
func unpackedPrograms(ctx context.Context, kind Kind) (programs, error) {
	from := kind.packages()
	root, err := unpacked(ctx, kind.String(), from)
	if err != nil {
		return programs{}, err
	}
	run := filepath.Join(root, "run")
	p := programs{origin: unpackedOrigin(from.Suite, root), root: root}
	switch {
	case strings.HasPrefix(from.Suite, ofNPM): // it has no pg_basebackup
		bin := filepath.Join(root, "native/bin")
		p.server, p.setup = []string{filepath.Join(bin, "postgres")}, []string{filepath.Join(bin, "initdb")}
	case kind.Postgres():
		bin := "usr/lib/postgresql/" + kind.version() + "/bin/"
		p.server, p.setup = []string{filepath.Join(root, bin, "postgres")}, []string{run, bin + "initdb"}
		p.backup = []string{run, bin + "pg_basebackup"}
	case kind == MySQL:
		p.server = []string{run, "usr/sbin/mysqld"}
		p.setup = p.server
		p.options = []string{
			"--basedir=" + root + "/usr", "--lc-messages-dir=" + root + "/usr/share/mysql",
			"--character-sets-dir=" + root + "/usr/share/mysql/charsets",
			"--plugin-dir=" + root + "/usr/lib/mysql/plugin",
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
