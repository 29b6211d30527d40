package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tool is a program that tests run beside servers: a client in another language, say.
type Tool struct {
	Line        []string // the command line, without its arguments
	Environment []string // besides this process's own
	Origin      string   // how it was found, in one line
}

// Command runs it with arguments.
func (t Tool) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, t.Line[0], append(t.Line[1:len(t.Line):len(t.Line)], arguments...)...)
	c.Env = append(os.Environ(), t.Environment...)
	return c
}

// toolOf finds a program of the machine that knows what is asked, or else unpacks packages under a
// name and takes a program of their tree.
func toolOf(ctx context.Context, name string, asked []string, tree string, from Packages, program string) (
	tool Tool, root string, err error,
) {
	path, err := exec.LookPath(name)
	if err == nil {
		if err = exec.CommandContext(ctx, path, asked...).Run(); err == nil {
			return Tool{Line: []string{path}, Origin: path}, "", nil
		}
	}
	root, unpackErr := unpacked(ctx, tree, from)
	if unpackErr != nil {
		return Tool{}, "", errors.Join(err, unpackErr)
	}
	tool = Tool{Line: []string{filepath.Join(root, "run"), program}, Origin: unpackedOrigin(from.Suite, root)}
	return tool, root, nil
}

// Psql is PostgreSQL's own client.
func Psql(ctx context.Context) (Tool, error) {
	with := Postgres18 // which tests unpack as a server
	tool, _, err := toolOf(ctx, "psql", []string{"--version"}, with.String(), with.packages(),
		"usr/lib/postgresql/18/bin/psql")
	return tool, err
}

// MySQLClient is the client that comes with a server of this kind, MySQL or MariaDB.
func MySQLClient(ctx context.Context, kind Kind) (tool Tool, err error) {
	name, tree, from := "mysql", "MySQL client", Packages{"sid", []string{"mysql-client-core"}, true}
	if kind.MariaDB() {
		name, tree, from = "mariadb", MariaDB.String(), MariaDB.packages()
	}
	tool, _, err = toolOf(ctx, name, []string{"--version"}, tree, from, "usr/bin/"+name)
	return tool, err
}

// Python is a Python 3 that has psycopg and PyMySQL. Its first argument is the path of a script.
func Python(ctx context.Context) (Tool, error) {
	from := Packages{"bookworm", []string{
		"python3.11", "python3.11-minimal", "python3-psycopg", "python3-pymysql", "python3-typing-extensions",
	}, true}
	tool, root, err := toolOf(ctx, "python3", []string{"-c", "import psycopg, pymysql"}, "Python", from,
		"usr/bin/python3.11")
	if root == "" {
		return tool, err
	}
	tool.Environment = []string{
		"PYTHONHOME=" + filepath.Join(root, "usr"),
		"PYTHONPATH=" + filepath.Join(root, "usr/lib/python3/dist-packages"),
	}
	// psycopg looks for its library among those of the machine. The script run finds the tree's.
	tool.Line = append(tool.Line, "-c", "import ctypes.util, runpy, sys; del sys.argv[0]; "+
		"ctypes.util.find_library = {'pq': 'libpq.so.5', 'c': 'libc.so.6'}.get; "+
		"runpy.run_path(sys.argv[0], run_name='__main__')")
	return tool, nil
}

// Ruby is a Ruby that has pg and mysql2.
func Ruby(ctx context.Context) (Tool, error) {
	from := Packages{"bookworm", []string{"ruby3.1", "ruby-pg", "ruby-mysql2"}, true}
	tool, root, err := toolOf(ctx, "ruby", []string{"-e", "require 'pg'; require 'mysql2'"}, "Ruby", from,
		"usr/bin/ruby3.1")
	if root == "" {
		return tool, err
	}
	var folders []string
	for _, folder := range []string{
		"ruby/vendor_ruby", "*-linux-gnu*/ruby/vendor_ruby/3.1.0", "ruby/3.1.0", "*-linux-gnu*/ruby/3.1.0",
	} {
		found, err := filepath.Glob(filepath.Join(root, "usr/lib", folder))
		if err != nil {
			return Tool{}, err
		}
		folders = append(folders, found...)
	}
	plugins, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/libmariadb3/plugin"))
	if err != nil {
		return Tool{}, err
	}
	tool.Environment = []string{
		"RUBYLIB=" + strings.Join(folders, ":"), "MARIADB_PLUGIN_DIR=" + strings.Join(plugins, ":"),
	}
	tool.Line = append(tool.Line, "--disable-gems")
	return tool, nil
}

// Java runs the source of a class, with drivers of PostgreSQL and MariaDB in its path. The latter
// speaks to MySQL too. It takes a JDK of the machine: one that is only unpacked does not find its
// settings, which Debian keeps in /etc.
func Java(ctx context.Context) (Tool, error) {
	path, err := exec.LookPath("javac")
	if err != nil {
		return Tool{}, fmt.Errorf("no JDK: install one, openjdk-17-jdk-headless say: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return Tool{}, err
	}
	root, err := unpacked(ctx, "JDBC", Packages{
		"bookworm", []string{"libpostgresql-jdbc-java", "libmariadb-java"}, false,
	})
	jars := filepath.Join(root, "usr/share/java")
	drivers := jars + "/postgresql.jar:" + jars + "/mariadb-java-client.jar"
	return Tool{Line: []string{filepath.Join(filepath.Dir(path), "java"), "-cp", drivers}, Origin: path}, err
}

// prometheus is Debian's, with the C library that it runs on.
var prometheus = Packages{"bookworm", []string{"prometheus", "libc6"}, false}

// Promtool checks metrics and rules, and tests rules.
func Promtool(ctx context.Context) (Tool, error) {
	tool, _, err := toolOf(ctx, "promtool", []string{"--version"}, "Prometheus", prometheus, "usr/bin/promtool")
	return tool, err
}

// Browser is a Chromium that can be started.
type Browser struct {
	Program     string
	Environment []string // besides this process's own
	Origin      string   // how it was found, in one line
}

// Chromium finds the browser of this machine, or else unpacks Debian's packages into the cache. It
// writes what the browser needs to find its libraries and fonts into folder.
func Chromium(ctx context.Context, folder string) (Browser, error) {
	if path, err := exec.LookPath("chromium"); err == nil {
		return Browser{Program: path, Origin: path}, nil
	}
	b, err := unpackedChromium(ctx, folder)
	if err != nil {
		return Browser{}, fmt.Errorf("no Chromium to test with: install the package chromium; tried to unpack it: %w",
			err)
	}
	return b, nil
}

func unpackedChromium(ctx context.Context, folder string) (Browser, error) {
	from := Packages{"bookworm", []string{"chromium", "chromium-common", "fonts-dejavu-core", "fonts-liberation"}, true}
	root, err := unpacked(ctx, "chromium", from)
	if err != nil {
		return Browser{}, err
	}
	b := Browser{Program: filepath.Join(root, "usr/lib/chromium/chromium"), Origin: unpackedOrigin(from.Suite, root)}
	// A browser starts itself again for its other processes, by the name of what runs. So it cannot
	// run on the tree's C library, as servers do. It runs on the machine's own, and takes from the
	// tree what the machine lacks.
	libraries := filepath.Join(folder, "libraries")
	if err := linkMissing(root, libraries); err != nil {
		return Browser{}, err
	}
	fonts := filepath.Join(folder, "fonts.conf")
	b.Environment = []string{"LD_LIBRARY_PATH=" + libraries, "FONTCONFIG_FILE=" + fonts}
	return b, os.WriteFile(fonts, fmt.Appendf(nil, `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>
`, filepath.Join(root, "usr/share/fonts"), filepath.Join(folder, "fonts")), 0o644)
}

// linkMissing fills a folder with links to the libraries of a tree that the machine does not have.
func linkMissing(root, folder string) error {
	found, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/*.so*"))
	more, moreErr := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*/pulseaudio/*.so*"))
	if err := errors.Join(err, moreErr, os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	for _, path := range append(found, more...) {
		if _, err := os.Stat(strings.TrimPrefix(path, root)); err == nil {
			continue
		}
		if err := os.Symlink(path, filepath.Join(folder, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}
