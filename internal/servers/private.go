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
)

// plan is how one private instance is created and run.
type plan struct {
	kind         Kind
	name, origin string
	setup, run   []string // command lines; nothing is set up without setup
	dsn          string
	// what is done as soon as new data can be used, if that is not just to see whether the server
	// answers
	first probe
}

// privatePrograms are programs of a kind to start private instances of.
func privatePrograms(ctx context.Context, kind Kind) (programs, error) {
	found, err := installed(kind)
	if err == nil {
		return found, nil
	}
	fetched, fetchErr := unpackedPrograms(ctx, kind)
	if fetchErr != nil {
		return programs{}, fmt.Errorf("no programs of %v: %w", kind, errors.Join(err, fetchErr))
	}
	return fetched, nil
}

// start starts a private instance with fresh data.
func (p programs) start(ctx context.Context, kind Kind, options Options) (*Server, error) {
	return startPrivate(ctx, func(folder string, port int) (plan, error) {
		if kind.database() {
			return p.plan(folder, port, kind, options), nil
		}
		return p.planShipped(folder, port, kind)
	})
}

// startPrivate starts what is planned for a new folder and a free port of loopback.
func startPrivate(ctx context.Context, planFor func(folder string, port int) (plan, error)) (*Server, error) {
	removeOrphans()
	folder, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
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

func (i *instance) create(ctx context.Context, planFor func(folder string, port int) (plan, error)) (*Server, error) {
	if err := giveAway(i.folder); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	plan, err := planFor(i.folder, port)
	if err != nil {
		return nil, err
	}
	if plan.setup != nil {
		if text, err := command(ctx, i.folder, plan.setup).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", plan.setup[0], err, lastLines(text))
		}
	}
	i.run, i.ending = plan.run, plan.kind.ending()
	first := plan.first
	if first == nil {
		first = plan.kind.answers(plan.dsn)
	}
	if err := i.restart(ctx, first); err != nil {
		return nil, err
	}
	return &Server{
		Kind: plan.kind, Name: plan.name, DSN: plan.dsn, own: i, stop: i.remove,
		Origin: fmt.Sprintf("%s, private instance on port %d", plan.origin, port),
	}, nil
}

// configure writes a file that the server reads, whatever the umask.
func configure(file, text string) error {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return giveAway(file)
}

// dataIn is where the servers have their data below the folder of an instance.
func dataIn(folder string) string { return filepath.Join(folder, "data") }

// plan is a database server with a new data folder. What it commits outlives a kill of the server
// in any case, so without Durable too it is written at every commit, but not flushed to the disk.
func (p programs) plan(folder string, port int, kind Kind, options Options) plan {
	made := plan{kind: kind, name: kind.String(), origin: p.origin}
	data, at := dataIn(folder), strconv.Itoa(port)
	switch kind {
	case Postgres15, Postgres18:
		made.setup = append(slices.Clone(p.setup), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
			"--locale=C", "--no-sync")
		made.run = append(slices.Clone(p.server), "-D", data, "-p", at, "-k", folder, "-c",
			"listen_addresses=127.0.0.1",
			"-c", "max_connections="+options.connections(), "-c", "fsync="+onOff(options.Durable), "-c", "jit=off",
			"-c", "dynamic_shared_memory_type=mmap") // in the data folder: nothing else is left of a killed server
		made.run = append(made.run, options.Settings...)
		url := "postgres://postgres@127.0.0.1:" + at + "/%s?sslmode=disable"
		made.dsn, made.first = fmt.Sprintf(url, "txlock"), kind.creates(fmt.Sprintf(url, "postgres"))
		return made
	case MySQL:
		made.setup = append(slices.Clone(p.setup), append(
			slices.Clone(p.options), "--initialize-insecure", "--datadir="+data)...)
		made.run = append(slices.Clone(p.server), append(
			slices.Clone(p.options), "--mysqlx=OFF", "--skip-log-bin", "--secure-file-priv=NULL")...)
	default:
		made.setup = append(slices.Clone(p.setup), append(
			slices.Clone(p.options), "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db",
			"--force")...)
		made.run = append(slices.Clone(p.server), p.options...)
	}
	// must be the first option
	made.setup = slices.Insert(append(made.setup, noNativeAIO), len(p.setup), "--no-defaults")
	flush := "2"
	if options.Durable {
		flush = "1"
	}
	made.run = append(made.run, "--datadir="+data, "--bind-address=127.0.0.1", "--port="+at,
		"--socket="+filepath.Join(folder, "s"),
		"--pid-file="+filepath.Join(folder, "pid"), "--max-connections="+options.connections(),
		"--innodb-flush-log-at-trx-commit="+flush,
		"--innodb-buffer-pool-size=128M", noNativeAIO)
	made.run = slices.Insert(append(made.run, options.Settings...), len(p.server), "--no-defaults")
	url := "root@tcp(127.0.0.1:" + at + ")/"
	made.dsn, made.first = url+"txlock", kind.creates(url)
	return made
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
	// A MariaDB that starts removes the temporary tables of others that have theirs in the same
	// folder.
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "TMPDIR=" + folder, "LC_ALL=C", "TZ=UTC"}
	c.SysProcAttr = asNobody()
	return c
}

// freePort is a port that outgoing connections do not get, so that none has it while a server is
// down. Others who look for one do not get it either for as long as this process lives, though the
// server may not listen yet: it has the UDP port of the same number.
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

// reserved has the UDP port of each port: a connection that nothing refers to is closed.
var reserved sync.Map

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
