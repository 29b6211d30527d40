package servers

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // to see when the server answers
	_ "github.com/jackc/pgx/v5/stdlib"
)

// startUp is how long a private server may take to answer.
const startUp = 60 * time.Second

// start starts a private instance with fresh data on a free port of loopback.
func (p programs) start(ctx context.Context, kind Kind, options Options) (*Server, error) {
	removeOrphans()
	folder, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	if err := giveAway(folder); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	server, err := p.startIn(ctx, folder, kind, options)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return server, nil
}

func (p programs) startIn(ctx context.Context, folder string, kind Kind, options Options) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	setup, run, dsn, admin := p.commandLines(folder, port, kind, options)
	if text, err := command(ctx, folder, setup).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", setup[0], err, lastLines(text))
	}
	var output bytes.Buffer
	process, err := launch(command(context.WithoutCancel(ctx), folder, run), &output)
	if err != nil {
		return nil, err
	}
	stop := func() error { return errors.Join(process.stop(), os.RemoveAll(folder)) }
	driver := "mysql"
	if kind == Postgres15 || kind == Postgres18 {
		driver = "pgx"
	}
	if err := createDatabase(ctx, driver, admin, process); err != nil {
		_ = process.stop()
		return nil, fmt.Errorf("%s: %w: %s", run[0], err, lastLines(output.Bytes()))
	}
	return &Server{
		Kind: kind, Name: kind.String(), DSN: dsn, stop: stop,
		Origin: fmt.Sprintf("%s, private instance on port %d", p.origin, port),
	}, nil
}

// commandLines are the calls that create the data folder and run the server, and the addresses of the test's database and
// of the one that exists from the start.
func (p programs) commandLines(folder string, port int, kind Kind, options Options) (setup, run []string, dsn, admin string) {
	data, at := filepath.Join(folder, "data"), strconv.Itoa(port)
	switch kind {
	case Postgres15, Postgres18:
		setup = append(slices.Clone(p.setup), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
		run = append(slices.Clone(p.server), "-D", data, "-p", at, "-k", folder, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300",
			"-c", "fsync="+onOff(options.Durable), "-c", "jit=off")
		url := "postgres://postgres@127.0.0.1:" + at + "/%s?sslmode=disable"
		return setup, run, fmt.Sprintf(url, "txlock"), fmt.Sprintf(url, "postgres")
	case MySQL:
		setup = append(slices.Clone(p.setup), append(slices.Clone(p.options), "--initialize-insecure", "--datadir="+data)...)
		run = append(slices.Clone(p.server), append(slices.Clone(p.options), "--mysqlx=OFF", "--skip-log-bin", "--secure-file-priv=NULL",
			"--innodb-doublewrite="+onOff(options.Durable))...)
	default:
		setup = append(slices.Clone(p.setup), append(slices.Clone(p.options), "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db", "--force")...)
		run = append(slices.Clone(p.server), p.options...)
	}
	setup = slices.Insert(append(setup, noNativeAIO), len(p.setup), "--no-defaults") // must be the first option
	flush := "0"
	if options.Durable {
		flush = "1"
	}
	run = append(run, "--datadir="+data, "--bind-address=127.0.0.1", "--port="+at, "--socket="+filepath.Join(folder, "s"),
		"--pid-file="+filepath.Join(folder, "pid"), "--max-connections=300", "--innodb-flush-log-at-trx-commit="+flush,
		"--innodb-buffer-pool-size=128M", noNativeAIO)
	run = slices.Insert(run, len(p.server), "--no-defaults")
	address := "root@tcp(127.0.0.1:" + at + ")/"
	return setup, run, address + "txlock", address
}

// noNativeAIO: what the kernel lends for it is limited for all servers of one user together.
const noNativeAIO = "--innodb-use-native-aio=OFF"

func onOff(on bool) string {
	return map[bool]string{true: "on", false: "off"}[on]
}

// command runs a program of a server in its folder, as a user that servers accept.
func command(ctx context.Context, folder string, line []string) *exec.Cmd {
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Dir = folder
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "LC_ALL=C", "TZ=UTC"}
	c.SysProcAttr = asNobody()
	return c
}

// process is a running server program.
type process struct {
	end    chan struct{} // closed to end it
	exited chan struct{} // closed when it has ended
}

// launch starts a server that dies with this process. The kernel's signal for that is bound to the thread that started
// the server, so a goroutine keeps that thread.
func launch(c *exec.Cmd, output *bytes.Buffer) (*process, error) {
	c.Stdout, c.Stderr = output, output
	dieWithParent(c.SysProcAttr)
	p := &process{end: make(chan struct{}), exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err != nil {
			return
		}
		go func() {
			_ = c.Wait()
			close(p.exited)
		}()
		select {
		case <-p.end:
			_ = c.Process.Signal(quickly)
			select {
			case <-p.exited:
			case <-time.After(20 * time.Second):
				_ = c.Process.Kill()
				<-p.exited
			}
		case <-p.exited:
		}
	}()
	return p, <-started
}

func (p *process) stop() error {
	close(p.end)
	<-p.exited
	return nil
}

// createDatabase waits until the server answers, and creates the database of the tests.
func createDatabase(ctx context.Context, driver, dsn string, p *process) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		probe, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := db.ExecContext(probe, "CREATE DATABASE txlock")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.exited:
			return errors.New("the server ended")
		case <-ctx.Done():
			return fmt.Errorf("the server did not answer: %w", errors.Join(ctx.Err(), err))
		}
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func lastLines(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

const folderPrefix = "txlock-server-"

// removeOrphans removes the data of servers whose process was killed and could not.
func removeOrphans() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, folder := range folders {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), folderPrefix), "-")
		if pid, err := strconv.Atoi(number); err == nil && !alive(pid) {
			_ = os.RemoveAll(folder)
		}
	}
}
