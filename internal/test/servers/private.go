package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// plan says how one private instance is created and run.
type plan struct {
	kind         Kind // of a database
	name, origin string
	setup, run   []string          // command lines; setup may be empty
	files        map[string]string // to be written before, path to text
	dsn          string
	answers      func(ctx context.Context, dsn string) error
	first        probe          // for new data; nil to ask whether the server answers
	ending       syscall.Signal // makes it shut down at once and leave nothing behind
}

// privatePrograms finds the programs for private instances of a kind.
func privatePrograms(ctx context.Context, kind Kind) (programs, error) {
	found, err := installed(kind)
	if err != nil {
		var fetchErr error
		if found, fetchErr = unpackedPrograms(ctx, kind); fetchErr != nil {
			return programs{}, fmt.Errorf("no programs of %v: %w", kind, errors.Join(err, fetchErr))
		}
	}
	found.fresh, err = found.freshData(ctx, kind)
	return found, err
}

// start starts a private instance with fresh data.
func (p programs) start(ctx context.Context, kind Kind, options Options) (*Server, error) {
	place := inMemory()
	if options.Durable {
		place = ""
	}
	return startPrivate(ctx, place, func(folder string, port int) plan { return p.plan(folder, port, kind, options) })
}

// startPrivate starts what is planned for a new folder in place, which is that of temporary files
// when it is empty, and a free port of 127.0.0.1.
func startPrivate(ctx context.Context, place string, planFor func(folder string, port int) plan) (*Server, error) {
	removeOrphans()
	folder, err := os.MkdirTemp(place, fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	own := &instance{folder: folder}
	server, err := own.create(ctx, planFor)
	if err != nil {
		return nil, errors.Join(err, own.remove())
	}
	return server, nil
}

func (i *instance) create(ctx context.Context, planFor func(folder string, port int) plan) (*Server, error) {
	if err := giveAway(i.folder); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	plan := planFor(i.folder, port)
	for file, text := range plan.files {
		if err := configure(file, text); err != nil {
			return nil, err
		}
	}
	if plan.setup != nil {
		if err := i.setUp(ctx, plan.setup); err != nil {
			return nil, err
		}
	}
	i.run, i.ending = plan.run, plan.ending
	server := &Server{
		Kind: plan.kind, Name: plan.name, DSN: plan.dsn, own: i, stop: i.remove, answers: plan.answers,
		Origin: fmt.Sprintf("%s, private instance on port %d", plan.origin, port),
	}
	first := plan.first
	if first == nil {
		first = server.answering
	}
	return server, i.restart(ctx, first)
}

// configure writes a file that the server can read, whatever the umask is.
func configure(file, text string) error {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return giveAway(file)
}

// dataIn is where the servers have their data below the folder of an instance.
func dataIn(folder string) string { return filepath.Join(folder, "data") }

// plan is a database with a new data folder. What it commits outlives a kill of the server in any
// case: without Durable, it writes at every commit too, but does not flush to the disk.
func (p programs) plan(folder string, port int, kind Kind, options Options) plan {
	made := plan{kind: kind, name: kind.String(), origin: p.origin, answers: kind.answers, ending: quickly}
	data, at := dataIn(folder), strconv.Itoa(port)
	made.setup = p.initialize(kind, data)
	switch {
	case kind.Postgres():
		made.run = append(slices.Clone(p.server), "-D", data, "-p", at, "-k", folder, "-c",
			"listen_addresses=127.0.0.1",
			"-c", "max_connections="+options.connections(), "-c", "fsync="+onOff(options.Durable), "-c", "jit=off",
			"-c", "dynamic_shared_memory_type=mmap") // in the data folder: nothing else is left of a killed server
		made.run = append(made.run, options.Settings...)
		made.dsn = strings.Replace(urlOf(kind, port), "/postgres?", "/txlock?", 1)
		made.first = kind.creates(urlOf(kind, port))
		return made
	case kind == MySQL:
		made.run = append(slices.Clone(p.server), append(
			slices.Clone(p.options), "--mysqlx=OFF", "--skip-log-bin", "--secure-file-priv=NULL")...)
	default:
		made.run = append(slices.Clone(p.server), p.options...)
	}
	flush := "2"
	if options.Durable {
		flush = "1"
	}
	made.run = append(made.run, "--datadir="+data, "--bind-address=127.0.0.1", "--port="+at,
		"--socket="+filepath.Join(folder, "s"),
		"--pid-file="+filepath.Join(folder, "pid"), "--max-connections="+options.connections(),
		"--innodb-flush-log-at-trx-commit="+flush,
		"--innodb-buffer-pool-size=128M", noNativeAIO)
	made.run = slices.Insert(append(made.run, options.Settings...), len(p.server), noDefaults)
	made.dsn, made.first = urlOf(kind, port)+"txlock", kind.creates(urlOf(kind, port))
	return made
}

// initialize is the command line that creates a data folder.
func (p programs) initialize(kind Kind, data string) []string {
	switch {
	case p.fresh != "":
		return []string{"cp", "-a", p.fresh, data}
	case kind.Postgres():
		return slices.Concat(p.setup,
			[]string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"})
	}
	line := slices.Concat(p.setup, []string{noDefaults}, p.options, []string{"--datadir=" + data, noNativeAIO})
	if kind == MySQL {
		return append(line, "--initialize-insecure")
	}
	return append(line, "--auth-root-authentication-method=normal", "--skip-test-db", "--force")
}

// noDefaults must be the first option.
const noDefaults = "--no-defaults"

// urlOf is the address of a new server, in which only its own databases are.
func urlOf(kind Kind, port int) string {
	if kind.Postgres() {
		return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	}
	return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port)
}

// noNativeAIO does without native asynchronous I/O: the kernel limits it for all servers of a user
// together.
const noNativeAIO = "--innodb-use-native-aio=OFF"

func onOff(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }

// command is a program of a server, run in the server's folder by a user that servers accept.
func command(ctx context.Context, folder string, line []string) *exec.Cmd {
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Dir = folder
	// TMPDIR is the folder of this server: a MariaDB that starts removes the temporary tables that
	// it finds there, whosever they are.
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "TMPDIR=" + folder, "LC_ALL=C", "TZ=UTC"}
	c.SysProcAttr = asNobody()
	return c
}

// freePort returns a port below those of outgoing connections, so that none of them takes it while
// a server is down. It is reserved for the life of this process, even while no server listens on
// it: the process holds the UDP port of the same number, and other processes look at that.
func freePort() (int, error) {
	var failed error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		address := "127.0.0.1:" + strconv.Itoa(port)
		sign, err := net.ListenPacket("udp", address)
		if err != nil {
			failed = err
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err == nil {
			reserved.Store(port, sign)
			return port, listener.Close()
		}
		failed = errors.Join(err, sign.Close())
	}
	return 0, failed
}

// reserved keeps the UDP ports open: the garbage collector would close them.
var reserved sync.Map

func lastLines(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

const (
	folderPrefix = "txlock-server-"
	sharedMemory = "/dev/shm"
)

// removeOrphans removes the data that killed processes left behind.
func removeOrphans() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	further, _ := filepath.Glob(filepath.Join(sharedMemory, folderPrefix+"*")) // see inMemory
	for _, folder := range append(folders, further...) {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), folderPrefix), "-")
		if pid, err := strconv.Atoi(number); err == nil && !alive(pid) {
			_ = os.RemoveAll(folder)
		}
	}
}
