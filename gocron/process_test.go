package txlockgocron_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	txlockgocron "github.com/txlock/txlock/gocron"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

// The test binary runs itself as an instance in another process: TestMain sees instanceVariable.
// For each line that it reads, the instance lets a minute begin and answers with the outcome of the
// job. At the end of its input it shuts down.
const instanceVariable = "TXLOCK_GOCRON_INSTANCE"

// orders configure the instance.
type orders struct {
	DSN, Label, Job string
	Kind            servers.Kind
}

type process struct {
	*exec.Cmd
	label  string
	input  io.WriteCloser
	output *bufio.Scanner
}

func (e *engine) startProcess(t *testing.T, job string) *process {
	t.Helper()
	o := orders{DSN: e.DSN, Label: newLabel(), Job: job, Kind: e.Kind}
	text, err := json.Marshal(o)
	require.NoError(t, err)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), instanceVariable+"="+string(text))
	c.Stderr = os.Stderr
	input, err := c.StdinPipe()
	require.NoError(t, err)
	output, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if !e.postgres {
			_, _ = e.admin.Exec("DROP DATABASE IF EXISTS " + o.Label)
		}
	})
	return &process{Cmd: c, label: o.Label, input: input, output: bufio.NewScanner(output)}
}

// tick lets a minute begin in the process.
func (p *process) tick(t *testing.T) string {
	t.Helper()
	_, err := fmt.Fprintln(p.input)
	require.NoError(t, err)
	require.True(t, p.output.Scan(), "the process ended")
	return p.output.Text()
}

func beInstance() int {
	err := playInstance()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the instance:", err)
		return 1
	}
	return 0
}

func playInstance() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(instanceVariable)), &o); err != nil {
		return err
	}
	e, err := newEngine(&servers.Server{Kind: o.Kind, DSN: o.DSN})
	if err != nil {
		return err
	}
	defer e.admin.Close()
	// An instance may need long to start. No test waits for this minimum to end: an instance that
	// is killed or shuts down leaves nothing behind.
	i, err := e.connect(o.Label, 0, txlockgocron.WithLockAtLeastFor(time.Hour))
	if err != nil {
		return err
	}
	if err := errors.Join(i.schedule(), i.add(o.Job, everyMinute())); err != nil {
		return err
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		if err := i.tick(); err != nil {
			return err
		}
		switch o := <-i.outcomes; {
		case errors.Is(o.missed, txlock.ErrNotAcquired):
			fmt.Println("missed")
		default:
			fmt.Println(errors.Join(o.missed, o.unlocked))
		}
	}
	return errors.Join(i.scheduler.Shutdown(), i.close())
}

const ran = "<nil>"

// Instances in different processes run a job once per tick. If the one that has the lock is killed,
// the other goes on. An instance that shuts down leaves nothing behind.
func TestProcesses(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine) {
		job := newLabel()
		first, second := e.startProcess(t, job), e.startProcess(t, job)
		const ticks = 3
		for range ticks {
			require.Equal(t, ran, first.tick(t))
			require.Equal(t, "missed", second.tick(t))
		}
		runs, at := e.runs(t, job)
		require.Equal(t, []int{ticks, ticks}, []int{runs, at})

		require.NoError(t, first.Process.Kill())
		require.Error(t, first.Wait())
		eventually.True(t, "the other instance runs the job", func() bool { return second.tick(t) == ran })
		require.Equal(t, ran, second.tick(t))
		e.transactions(t, second.label, 1)

		third := e.startProcess(t, job)
		require.Equal(t, "missed", third.tick(t))
		require.NoError(t, second.input.Close())
		require.NoError(t, second.Wait())
		eventually.True(t, "the third instance runs the job", func() bool { return third.tick(t) == ran })
		e.transactions(t, second.label, 0)
	})
}
