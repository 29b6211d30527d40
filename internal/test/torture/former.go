package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/servers"
)

// A fleet of two versions: every other worker is the torture program of another version, on a lock
// table that one of the two has installed. What both promise is checked as in a fleet of one.

// refusals are how often a version refused an operation because the tables beside the lock table
// are those of the other one. That is what CHANGELOG.md says of elections, permits, claims and
// tokens: no lock is given then, so nothing is broken, and the program says what to do.
type refusals map[string]int

// isFormer tells whether a worker is one of the other version.
func (s *settings) isFormer(process int) bool { return s.Former != "" && process%2 == 1 }

// program is what a worker runs.
func (c *crew) program(number int) (string, error) {
	if c.fleet.isFormer(number) {
		return c.fleet.Former, nil
	}
	return os.Executable()
}

// excuse notes a refusal, and what the last release is known to get wrong on a busy machine. mu is
// held.
func (c *crew) excuse(o *operation) {
	if c.fleet.isFormer(o.Process) && strings.Contains(o.Error, "the number of slots was not read yet") {
		o.Expected = true // it gives a look beside a caller's transaction 1 s; CHANGELOG.md: 3 s since
	}
	if !c.fleet.compares() && o.Fence != nil && o.Fence.Outcome == failed {
		o.Fence = nil // the store compares tokens of both
	}
	if c.fleet.Former == "" || o.Granted != 0 || o.Outcome != failed ||
		!strings.Contains(o.Error, txlock.ErrNotInstalled.Error()) {
		return
	}
	o.Expected = true
	version := "this"
	if c.fleet.isFormer(o.Process) {
		version = "former"
	}
	c.refusals[version+" "+string(o.Verb)]++
}

// compares tells whether the tokens of both versions are compared. On MySQL and MariaDB those of
// 0.1.0 rest on another table: "all clients whose tokens are compared must be of this version".
func (s *settings) compares() bool { return s.Former == "" || isPostgres(s.Kind) }

// comparable leaves out the holds whose tokens are not compared with those of this version.
func (s *settings) comparable(holds []hold) []hold {
	if s.compares() {
		return holds
	}
	return slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return s.isFormer(h.Process) })
}

func (r refusals) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(r)) {
		all = append(all, fmt.Sprintf("%s %d", what, r[what]))
	}
	return strings.Join(all, ", ")
}

// install installs the lock table. With a command of another version, that one installs first, and
// then its installation is upgraded as CHANGELOG.md says.
func (t *trial) install(ctx context.Context) error {
	if t.Installer != "" {
		command := exec.CommandContext(ctx, t.Installer, "install", "--table", lockTable)
		command.Env = append(os.Environ(), "TXLOCK_DSN="+(&servers.Server{DSN: t.data.dsn}).URL())
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s install: %w: %s", t.Installer, err, output)
		}
		for _, table := range []string{"_leaders", "_permits"} {
			if _, err := t.data.db.ExecContext(ctx, "DROP TABLE "+lockTable+table); err != nil {
				return err
			}
		}
	}
	locks, err := t.data.locker(ctx, t.lease)
	if err != nil {
		return err
	}
	return errors.Join(locks.Install(ctx), locks.Close())
}
