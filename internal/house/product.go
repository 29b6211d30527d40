package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// parts are the folders of the product, and how their lines are called. What is not below one of
// them are tests, tools and modules of their own.
var parts = []struct{ name, folder string }{
	{"root", "."},
	{"seam", "dialects"},
	{"dialects/postgres", "dialects/postgres"},
	{"dialects/mysql", "dialects/mysql"},
	{"what both dialects share", "dialects/internal"},
	{"internal", "internal/identifier"},
	{"internal", "internal/label"},
	{"internal", "internal/heartbeat"},
	{"internal", "internal/locktable"},
	{"internal", "internal/peer"},
	{"internal", "internal/queue"},
}

// product is the code that users of the library run.
type product struct {
	set   *token.FileSet
	files map[string]*source
}

type source struct {
	part  string
	lines []string
	tree  *ast.File
}

func readProduct() (product, error) {
	p := product{set: token.NewFileSet(), files: make(map[string]*source)}
	for _, part := range parts {
		err := filepath.WalkDir(part.folder, func(path string, entry fs.DirEntry, err error) error {
			flat := part.folder == "." || part.folder == "dialects"
			switch {
			case err != nil:
				return err
			case entry.IsDir() && flat && path != part.folder:
				return fs.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return p.read(part.name, path)
		})
		if err != nil && !os.IsNotExist(err) {
			return p, err
		}
	}
	return p, nil
}

func (p product) read(part, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tree, err := parser.ParseFile(p.set, path, text, parser.SkipObjectResolution)
	p.files[filepath.ToSlash(path)] = &source{part, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), tree}
	return err
}

// lines counts code, comments and blank lines alike.
func (p product) lines() []figure {
	total, of := 0, make(map[string]int)
	for _, file := range p.files {
		of[file.part] += len(file.lines)
		total += len(file.lines)
	}
	var figures []figure
	for _, part := range parts {
		name := "lines of " + part.name
		if !slices.ContainsFunc(figures, func(f figure) bool { return f.name == name }) {
			figures = append(figures, figure{name, of[part.name]})
		}
	}
	return append(figures, figure{"lines of the product", total})
}

// seam counts the methods of all interfaces of the seam, and the fields of a request.
func (p product) seam() []figure {
	methods, fields := 0, 0
	for path, file := range p.files {
		if filepath.ToSlash(filepath.Dir(path)) != "dialects" {
			continue
		}
		ast.Inspect(file.tree, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			switch of := spec.Type.(type) {
			case *ast.InterfaceType:
				methods += named(of.Methods)
			case *ast.StructType:
				if spec.Name.Name == "Request" {
					fields = named(of.Fields)
				}
			}
			return true
		})
	}
	return []figure{{"methods of the seam", methods}, {"fields of Request", fields}}
}

// named counts the names of a list, without what it embeds.
func named(list *ast.FieldList) (n int) {
	for _, field := range list.List {
		n += len(field.Names)
	}
	return n
}

// function is a function or method, and its lines from the keyword on.
type function struct {
	name     string
	from, to int
}

func (p product) functions(file *source) (list []function) {
	for _, decl := range file.tree.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			list = append(list, function{f.Name.Name, p.set.Position(f.Pos()).Line, p.set.Position(f.End()).Line})
		}
	}
	return list
}

// many is how many capabilities a function knows that knows too many.
const many = 5

var comment = regexp.MustCompile(`//.*`)

// crossings names the functions that mention many capabilities, by the words of the file
// capabilities, those with the most first.
func (p product) crossings() (names []string, err error) {
	lines, err := readLines("internal/house/capabilities")
	if err != nil {
		return nil, err
	}
	words := make(map[string]*regexp.Regexp, len(lines))
	for _, line := range lines {
		name, expression, _ := strings.Cut(line, " ")
		if words[name], err = regexp.Compile(strings.TrimSpace(expression)); err != nil {
			return nil, fmt.Errorf("capability %s: %w", name, err)
		}
	}
	for path, file := range p.files {
		for _, f := range p.functions(file) {
			code := comment.ReplaceAllString(strings.Join(file.lines[f.from-1:f.to], "\n"), "")
			var known []string
			for name, word := range words {
				if word.MatchString(code) {
					known = append(known, name)
				}
			}
			if len(known) >= many {
				slices.Sort(known)
				names = append(names, fmt.Sprintf("%2d  %s %s: %s", len(known), path, f.name, strings.Join(known, " ")))
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	return names, nil
}
