package main

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// core are the files of the root package that make the verbs. All others are those of kinds.
var core = []string{
	"do.go", "install.go", "mutex.go", "nowait.go", "options.go", "queue.go", "reentrant.go", "rows.go",
	"session.go", "sharding.go", "trace.go", "txlock.go",
}

// Arrows run one way: kinds, verbs, session, seam. A kind names no session, no session of a driver
// and no field of a driver's request.
func TestKindsKnowNoSession(t *testing.T) {
	found := innerNames(t)
	for _, file := range core {
		require.FileExists(t, filepath.Join("..", "..", file))
		delete(found, file)
	}
	for _, names := range found {
		for name, at := range names {
			t.Errorf("%s: a kind uses %s", at, name)
		}
	}
}

// innerNames are the names of sessions and of requests that each file of the root package uses,
// with the place of one use.
func innerNames(t *testing.T) map[string]map[string]token.Position {
	t.Helper()
	set, uses := token.NewFileSet(), map[*ast.Ident]types.Object{}
	imports := importer.ForCompiler(set, "gc", exports(t))
	folder, err := build.ImportDir(filepath.Join("..", ".."), 0)
	require.NoError(t, err)
	var trees []*ast.File
	for _, name := range folder.GoFiles {
		tree, err := parser.ParseFile(set, filepath.Join(folder.Dir, name), nil, 0)
		require.NoError(t, err)
		trees = append(trees, tree)
	}
	config := types.Config{Importer: imports}
	root, err := config.Check(module, set, trees, &types.Info{Uses: uses})
	require.NoError(t, err)
	dialects, err := imports.Import(module + "/dialects")
	require.NoError(t, err)
	barred := map[types.Object]string{}
	bar(barred, root, "session")
	bar(barred, dialects, "Session")
	bar(barred, dialects, "Request")
	delete(barred, dialects.Scope().Lookup("Request")) // it may be passed on
	found := map[string]map[string]token.Position{}
	for ident, object := range uses {
		if name, known := barred[origin(object)]; known {
			at := set.Position(ident.Pos())
			file := filepath.Base(at.Filename)
			if found[file] == nil {
				found[file] = map[string]token.Position{}
			}
			found[file][name] = at
		}
	}
	require.Contains(t, found["session.go"], "txlock.session", "a verb")
	return found
}

// exports opens what the compiler has said of each package.
func exports(t *testing.T) importer.Lookup {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		module)
	text, err := list.Output()
	require.NoError(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(text)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// bar adds a type, its fields and its methods.
func bar(barred map[types.Object]string, in *types.Package, name string) {
	object := in.Scope().Lookup(name)
	full := in.Name() + "." + name
	barred[object] = full
	add := func(member types.Object) { barred[member] = full + "." + member.Name() }
	of := object.Type().(*types.Named)
	for method := range of.Methods() {
		add(method)
	}
	switch under := of.Underlying().(type) {
	case *types.Struct:
		for field := range under.Fields() {
			add(field)
		}
	case *types.Interface:
		for method := range under.ExplicitMethods() {
			add(method)
		}
	}
}

func origin(object types.Object) types.Object {
	switch object := object.(type) {
	case *types.Var:
		return object.Origin()
	case *types.Func:
		return object.Origin()
	}
	return object
}
