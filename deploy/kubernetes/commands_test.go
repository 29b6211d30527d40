//go:build unix

package kubernetes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

// image is a folder with what the images of the manifests have: txlock, and commands that note in a
// file that they begin, wait for a door, and note that they end.
type image struct {
	*testing.T
	folder string
	server *servers.Server
}

func newImage(t *testing.T, s *servers.Server) image {
	i := image{t, t.TempDir(), s}
	require.NoError(t, os.Symlink(command, filepath.Join(i.folder, "txlock")))
	script := `#!/bin/sh
echo begin >>"$0.log"; until [ -e "$0.door" ]; do sleep 0.01; done; echo end >>"$0.log"
`
	for _, name := range []string{"import.sh", "report.sh", "goose"} {
		require.NoError(t, os.WriteFile(filepath.Join(i.folder, name), []byte(script), 0o755))
	}
	return i
}

// start starts what a container is started with.
func (i image) start(container core.Container) *exec.Cmd {
	i.Helper()
	require.Equal(i, "TXLOCK_DSN", container.Env[0].Name)
	var words []string
	for _, word := range container.Command {
		require.NotContains(i, word, "$(", "ps shows arguments, and with them a password")
		words = append(words, strings.ReplaceAll(word, "/opt/", i.folder+"/"))
	}
	c := exec.Command(filepath.Join(i.folder, words[0]), words[1:]...)
	c.Env = []string{"TXLOCK_DSN=" + i.server.URL(), "PATH=" + i.folder + ":" + os.Getenv("PATH")}
	c.Stderr = &bytes.Buffer{}
	require.NoError(i, c.Start())
	i.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// succeeds waits for commands, which exit with 0.
func (i image) succeeds(commands ...*exec.Cmd) {
	i.Helper()
	for _, c := range commands {
		require.NoError(i, c.Wait(), c.Stderr)
	}
}

func (i image) open(name string) {
	require.NoError(i, os.WriteFile(filepath.Join(i.folder, name+".door"), nil, 0o644))
}

func (i image) log(name string) []string {
	text, _ := os.ReadFile(filepath.Join(i.folder, name+".log")) // none: it has not begun
	return strings.Fields(string(text))
}

// begins waits until a command has begun.
func (i image) begins(name string) {
	i.Helper()
	eventually.True(i, name+" has begun", func() bool { return len(i.log(name)) > 0 })
}

// The first pod imports, and one that starts meanwhile ends at once, and well.
func TestImport(t *testing.T) {
	job := read(t).jobs["import"].Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	eachEngine(t, func(t *testing.T, s *servers.Server) {
		i := newImage(t, s)
		first := i.start(job)
		i.begins("import.sh")
		i.succeeds(i.start(job))
		require.Equal(t, []string{"begin"}, i.log("import.sh"))
		i.open("import.sh")
		i.succeeds(first)
		require.Equal(t, []string{"begin", "end"}, i.log("import.sh"))
	})
}

// One pod of three that start at once makes the report of the day, and none that starts later. A
// pod that is killed in the middle leaves the report to the next.
func TestReport(t *testing.T) {
	job := read(t).jobs["daily-report"].Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	// So that a test at midnight sees one day, the day is a thousand years.
	job.Command = slices.Clone(job.Command)
	job.Command[slices.Index(job.Command, "24h")] = "2000000h"
	eachEngine(t, func(t *testing.T, s *servers.Server) {
		i := newImage(t, s)
		killed := i.start(job)
		i.begins("report.sh")
		require.NoError(t, killed.Process.Kill())
		require.Error(t, killed.Wait())
		three := []*exec.Cmd{i.start(job), i.start(job), i.start(job)}
		eventually.True(t, "another has begun", func() bool { return len(i.log("report.sh")) == 2 })
		i.open("report.sh")
		i.succeeds(three...)
		i.succeeds(i.start(job))
		require.Equal(t, []string{"begin", "begin", "end"}, i.log("report.sh"))
	})
}

// The init containers of three pods make the lock table, and migrate one after the other.
func TestInitContainers(t *testing.T) {
	containers := read(t).deployment.Spec.Template.Spec.InitContainers
	eachEngine(t, func(t *testing.T, s *servers.Server) {
		i := newImage(t, s)
		i.open("goose")
		for _, container := range containers {
			i.succeeds(i.start(container), i.start(container), i.start(container))
		}
		require.Equal(t, []string{"begin", "end", "begin", "end", "begin", "end"}, i.log("goose"))
	})
}
