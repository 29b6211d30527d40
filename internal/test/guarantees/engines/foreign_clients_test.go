package engines

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	programs "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// page has SQL that people copy, and links to programs. The tests run both.
var page = func() string {
	text, err := os.ReadFile("../../../../docs/protocol.md")
	if err != nil {
		panic(err)
	}
	return string(text)
}()

// foreign is a client that stands on the page.
type foreign struct {
	name    string
	tool    func() (servers.Tool, error) // nil: the server's own client
	heading string                       // of a script, which is typed
	program string                       // a file of examples/languages; empty for a script
	rest    string                       // what a caller of the program writes; of a script: how it adds one
	file    string                       // what the program is called with that
	flags   []string
}

var python, psql, ruby, java = found(servers.Python), found(servers.Psql), found(servers.Ruby), found(servers.Java)

// found looks for a tool once.
func found(find func(context.Context) (servers.Tool, error)) func() (servers.Tool, error) {
	return sync.OnceValues(func() (servers.Tool, error) { return find(background) })
}

// What a caller of a program writes: it adds one to COUNTER under the lock, and says when it holds
// that, and when it has released it.
const (
	pythonRest = `
import sys
address, key = sys.argv[1], sys.argv[2]
%s
with locked(conn, key) as work:
    %s
    print("holds", flush=True)
    sys.stdin.readline()
    work.execute("update COUNTER set n = %%s", [n + 1])
print("released", flush=True)
`

	rubyRest = `
address, key = ARGV[0], ARGV[1].dup.force_encoding("UTF-8")
$stdout.sync = true
%s
locked(conn, key) do |work|
  n = %s
  puts "holds"
  $stdin.gets
  work.%s("update COUNTER set n = #{n + 1}")
end
puts "released"
`

	// javaRest stands in front: java runs the first class of a file.
	javaRest = `
class Main {
    public static void main(String[] a) throws Exception {
        Class.forName("org.postgresql.Driver");
        Class.forName("org.mariadb.jdbc.Driver");
        try (Connection c = DriverManager.getConnection(a[0])) {
            Locked.locked(c, a[1], work -> {
                ResultSet n = work.createStatement().executeQuery("select n from COUNTER");
                n.next();
                int before = n.getInt(1);
                System.out.println("holds");
                System.in.read();
                work.createStatement().execute("update COUNTER set n = " + (before + 1));
            });
        }
        System.out.println("released");
    }
}
`
)

var foreignPostgres = []foreign{
	{
		name: "psycopg", tool: python, program: "postgres.py", file: "client.py",
		rest: fmt.Sprintf(pythonRest, `conn = psycopg.connect(address)
conn.execute("select 1")
try:
    with locked(conn, key):
        pass
except psycopg.ProgrammingError:
    pass
assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS, "the caller's transaction has ended"
conn.rollback()`,
			`(n,) = work.execute("select n from COUNTER").fetchone()`),
	},
	{name: "psql", tool: psql, heading: "### With a function", rest: addByPsql, flags: psqlFlags},
	{name: bareSQL, tool: psql, heading: "## PostgreSQL", rest: addByPsql, flags: psqlFlags},
}

const (
	bareSQL   = "statements" // whose reader looks whether the row came back
	addByPsql = "select n from COUNTER \\gset\nupdate COUNTER set n = :n + 1;\n"
)

var psqlFlags = []string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"}

var foreignMySQL = []foreign{
	{
		name: "PyMySQL", tool: python, program: "mysql.py", file: "client.py",
		rest: fmt.Sprintf(pythonRest, "import json\nconn = pymysql.connect(**json.loads(address))",
			`work.execute("select n from COUNTER"); (n,) = work.fetchone()`),
	},
	{
		name: "mysql", heading: "## MySQL and MariaDB",
		flags: []string{"--no-defaults", "--comments", "--default-character-set=utf8mb4", "-N", "-B", "--unbuffered"},
		rest:  "select n into @n from COUNTER;\nupdate COUNTER set n = @n + 1;\n",
	},
}

// fullForeign are further ones. Java takes a JDK of the machine.
var fullForeignPostgres = []foreign{
	{
		name: "Ruby", tool: ruby, program: "postgres.rb", file: "client.rb",
		rest: fmt.Sprintf(rubyRest, `conn = PG.connect(address)
conn.exec("begin")
begin
  locked(conn, key) {}
rescue RuntimeError
end
raise "the caller's transaction has ended" unless conn.transaction_status == PG::PQTRANS_INTRANS
conn.exec("rollback")`, `work.exec("select n from COUNTER")[0]["n"].to_i`,
			"exec"),
	},
	{name: "Java", tool: java, program: "Postgres.java", file: "Main.java", rest: javaRest},
}

var fullForeignMySQL = []foreign{
	{
		name: "Ruby", tool: ruby, program: "mysql.rb", file: "client.rb",
		rest: fmt.Sprintf(rubyRest, "require \"json\"\nconn = Mysql2::Client.new(JSON.parse(address))",
			`work.query("select n from COUNTER").first["n"]`, "query"),
	},
	{name: "Java", tool: java, program: "MySQL.java", file: "Main.java", rest: javaRest},
}

func foreignClients(e *testbed.Engine) []foreign {
	if e.Postgres {
		return append(foreignPostgres[:3:3], tier.Pick(nil, nil, fullForeignPostgres)...)
	}
	return append(foreignMySQL[:2:2], tier.Pick(nil, nil, fullForeignMySQL)...)
}

// stage is where foreign clients play: a fixture's place on a server.
type stage struct {
	*testbed.Engine
	foreign
	label   string            // of the fixture
	names   *strings.Replacer // from those of the page
	folder  string
	counter string
}

// player is a run of a foreign client with one key.
type player struct {
	*programs.Cmd
	events *bufio.Scanner
	input  io.WriteCloser
	rest   string // what is typed to release
	errors bytes.Buffer
}

func (s *stage) play(t *testing.T, key string) *player {
	t.Helper()
	find := s.tool
	if find == nil {
		find = func() (servers.Tool, error) { return servers.MySQLClient(background, s.Kind) }
	}
	tool := must.Get(find())(t)
	text := strings.ReplaceAll(s.code(t), "[sku:42]", "["+escaped(key)+"]")
	text = s.names.Replace(strings.ReplaceAll(withSlot(text, key), "sku:42", key))
	p := &player{}
	if s.file == "" {
		p.Cmd = tool.Command(background, append(s.flags[:len(s.flags):len(s.flags)], s.flagsOf(t)...)...)
	} else {
		program := filepath.Join(s.folder, s.file)
		if rest := strings.ReplaceAll(s.rest, "COUNTER", s.counter); s.file == "Main.java" {
			imports, class, _ := strings.Cut(text, "\nclass ")
			text = imports + rest + "\nclass " + class
		} else {
			text += rest
		}
		require.NoError(t, os.WriteFile(program, []byte(text), 0o600))
		p.Cmd = tool.Command(background, program, s.addressOf(t), key)
	}
	p.Cmd.Env = append(p.Cmd.Env, "LC_ALL=C.UTF-8", "PGCLIENTENCODING=UTF8") // the key is typed, or an argument
	p.Cmd.Stderr = &p.errors
	p.input = must.Get(p.Cmd.StdinPipe())(t)
	output := must.Get(p.Cmd.StdoutPipe())(t)
	p.events = bufio.NewScanner(output)
	require.NoError(t, p.Cmd.Start())
	t.Cleanup(func() { _ = p.Cmd.Process.Kill(); _ = p.Cmd.Wait() })
	if s.file == "" {
		p.rest = s.typed(t, p.input, text)
	} else {
		p.rest = "\n"
	}
	return p
}

// typed types a script up to where the work stands, and returns the rest.
func (s *stage) typed(t *testing.T, to io.WriteCloser, text string) (rest string) {
	t.Helper()
	before, after, found := strings.Cut(text, "-- the work\n")
	require.True(t, found)
	say := "select '%s';\n"
	if s.Postgres {
		say = "\\echo %s\n"
	}
	require.NoError(t, testbed.ErrorOf(io.WriteString(to, before+fmt.Sprintf(say, "holds"))))
	return strings.ReplaceAll(s.rest, "COUNTER", s.counter) + after + fmt.Sprintf(say, "released")
}

// says waits for a line of the client's. A script's client also prints what statements return.
func (p *player) says(t *testing.T, line string) {
	t.Helper()
	said := make(chan string, 1)
	go func() {
		for p.events.Scan() {
			if text := p.events.Text(); text == line {
				said <- text
				return
			}
		}
		said <- "nothing more"
	}()
	if got := testbed.Receive(t, said); got != line {
		_ = p.Cmd.Wait() // for all that it has said
		require.Equal(t, line, got, p.errors.String())
	}
}

func (p *player) release(t *testing.T) {
	t.Helper()
	require.NoError(t, testbed.ErrorOf(io.WriteString(p.input, p.rest)))
	p.says(t, "released")
}

// fails waits until the client has ended, which must be with an error and without the lock.
func (p *player) fails(t *testing.T) {
	t.Helper()
	require.NoError(t, p.input.Close())
	ended := make(chan []string, 1)
	go func() {
		var lines []string
		for p.events.Scan() {
			lines = append(lines, p.events.Text())
		}
		ended <- lines
	}()
	require.NotContains(t, testbed.Receive(t, ended), "holds")
	require.Error(t, p.Cmd.Wait())
	require.Regexp(t, "of 65536|at line 6", p.errors.String())
}

// escaped is a key as the page says to write it in a label.
func escaped(key string) string {
	return regexp.MustCompile(`[^A-Za-z0-9_.:/-]`).ReplaceAllStringFunc(key, func(text string) string {
		var b strings.Builder
		for _, c := range []byte(text) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
		return b.String()
	})
}

// flagsOf leads a script's client to the server.
func (s *stage) flagsOf(t *testing.T) []string {
	t.Helper()
	if s.Postgres {
		return []string{s.DSNFor(s.label, "", nil)}
	}
	c := s.config(t)
	host, port, _ := strings.Cut(c.Addr, ":")
	return []string{"-h", host, "-P", port, "-u", c.User, "--password=" + c.Passwd, c.DBName}
}

// addressOf is the server for a program.
func (s *stage) addressOf(t *testing.T) string {
	t.Helper()
	if s.Postgres {
		dsn := s.DSNFor(s.label, "", nil)
		if s.file == "Main.java" {
			return regexp.MustCompile(`^postgres://([^:@]*)@`).ReplaceAllString(dsn, "jdbc:postgresql://") +
				"&ApplicationName=" + s.label + "&user=postgres"
		}
		return dsn
	}
	c := s.config(t)
	host, port, _ := strings.Cut(c.Addr, ":")
	if s.file == "Main.java" {
		return fmt.Sprintf("jdbc:mariadb://%s/%s?user=%s&password=%s", c.Addr, c.DBName, c.User, c.Passwd)
	}
	name := map[string]string{"client.py": "user", "client.rb": "username"}[s.file]
	return fmt.Sprintf(`{"host": %q, "port": %s, %q: %q, "password": %q, "database": %q}`, host, port, name, c.User,
		c.Passwd, c.DBName)
}

func (s *stage) config(t *testing.T) *mysql.Config {
	t.Helper()
	return must.Get(mysql.ParseDSN(s.DSNFor(s.label, "", nil)))(t)
}
