package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const module = "github.com/txlock/txlock"

// paths counts the functions and files of the product through which one warm call of each verb runs
// on postgres.Open: command path makes the calls, and coverage tells.
func (p product) paths(ctx context.Context) (figures []figure, err error) {
	folder, err := os.MkdirTemp("", "txlock-house-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	binary, counters := filepath.Join(folder, "path"), filepath.Join(folder, "counters")
	if err := os.Mkdir(counters, 0o755); err != nil {
		return nil, err
	}
	if _, err := run(ctx, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", binary,
		"./internal/house/path"); err != nil {
		return nil, err
	}
	if _, err := run(ctx, binary, counters); err != nil {
		return nil, err
	}
	for _, verb := range []string{"Lock", "Do", "Do in a Do"} {
		functions, files, err := p.shortest(ctx, filepath.Join(counters, verb))
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{"functions of a " + verb, functions}, figure{"files of a " + verb, files})
	}
	return figures, nil
}

// shortest reads the calls of one verb. What runs beside a call, a heartbeat say, counts as well.
// So it returns the call with the fewest functions.
func (p product) shortest(ctx context.Context, folder string) (functions, files int, err error) {
	calls, err := os.ReadDir(folder)
	if err != nil {
		return 0, 0, err
	}
	for i, call := range calls {
		text := filepath.Join(folder, call.Name()+".txt")
		if _, err := run(ctx, "go", "tool", "covdata", "textfmt", "-i="+filepath.Join(folder, call.Name()),
			"-o="+text); err != nil {
			return 0, 0, err
		}
		blocks, err := readLines(text)
		if err != nil {
			return 0, 0, err
		}
		if n, of := p.ran(blocks); i == 0 || n < functions {
			functions, files = n, of
		}
	}
	return functions, files, nil
}

// block is a line of Go's coverage profile: file, first line, and how often it has run.
var block = regexp.MustCompile(`^` + module + `/(.*):(\d+)\.\d+,\d+\.\d+ \d+ (\d+)$`)

func (p product) ran(blocks []string) (functions, files int) {
	ran := make(map[string]bool)
	for _, line := range blocks {
		m := block.FindStringSubmatch(line)
		if m == nil || m[3] == "0" || p.files[m[1]] == nil {
			continue
		}
		at, _ := strconv.Atoi(m[2])
		for _, f := range p.functions(p.files[m[1]]) {
			if name := fmt.Sprint(m[1], ":", f.from); f.from <= at && at <= f.to && !ran[name] {
				ran[name] = true
				functions++
			}
		}
		if !ran[m[1]] {
			ran[m[1]] = true
			files++
		}
	}
	return functions, files
}

// run runs a command, whose coverage, if it has any, is not of interest at its end.
func run(ctx context.Context, name string, args ...string) (output []byte, err error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), "GOCOVERDIR="+os.TempDir())
	output, err = command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output)
	}
	return output, err
}
