package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Software describes a server that is no database of this package, such as those with which the
// benchmark compares. It starts as it ships.
type Software struct {
	Name     string
	Variable string   // the environment variable with the address of a running one
	Needs    []string // programs of the machine without which it cannot run
	Packages Packages
	Image    Image
	Ending   syscall.Signal // makes it shut down at once and leave nothing behind
	// Find returns the command line of the program: of the machine, or, if root is not empty, of
	// the unpacked packages there.
	Find func(root string) ([]string, error)
	// Run says how to run a private instance, with its files in a folder and listening on a port of
	// 127.0.0.1.
	Run func(folder string, port int) Run
	// Answers returns nil if the server at an address answers.
	Answers func(ctx context.Context, dsn string) error
}

// Run says how a private instance is run.
type Run struct {
	Arguments []string          // after the command line of the program
	Files     map[string]string // to be written before, path to text
	DSN       string
}

// Start finds or starts the server, in the same order as databases.
func (s Software) Start(ctx context.Context) (*Server, error) {
	return firstOf(ctx, s.Name, s.Variable,
		func(ctx context.Context) (*Server, error) {
			line, err := s.find("")
			if err != nil {
				return nil, err
			}
			return s.start(ctx, line, line[0])
		},
		func(ctx context.Context) (*Server, error) { return startContainer(ctx, s.Name, s.Image, s.Answers) },
		func(ctx context.Context) (*Server, error) {
			if err := s.needs(); err != nil {
				return nil, err
			}
			root, err := unpacked(ctx, s.Name, s.Packages)
			if err != nil {
				return nil, err
			}
			line, err := s.find(root)
			if err != nil {
				return nil, err
			}
			return s.start(ctx, line, unpackedOrigin(s.Packages.Suite, root))
		})
}

func (s Software) find(root string) ([]string, error) {
	if err := s.needs(); err != nil {
		return nil, err
	}
	return s.Find(root)
}

func (s Software) needs() error {
	for _, program := range s.Needs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s needs %s: %w", s.Name, program, err)
		}
	}
	return nil
}

func (s Software) start(ctx context.Context, line []string, origin string) (*Server, error) {
	return startPrivate(ctx, "", func(folder string, port int) plan {
		run := s.Run(folder, port)
		return plan{
			name: s.Name, origin: origin, run: append(line, run.Arguments...), files: run.Files, dsn: run.DSN,
			answers: s.Answers, ending: s.Ending,
		}
	})
}

// ProgramOf finds a program of the machine, or in a tree of packages, whose script run starts it.
func ProgramOf(name string) func(root string) ([]string, error) {
	return func(root string) ([]string, error) {
		if root != "" {
			return []string{filepath.Join(root, "run"), "usr/bin/" + name}, nil
		}
		path, err := exec.LookPath(name)
		return []string{path}, err
	}
}
