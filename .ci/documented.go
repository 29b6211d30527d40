// Command documented lists the exported names without a doc comment in the packages of the given
// folders.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

func main() {
	files := token.NewFileSet()
	missing := 0
	report := func(at token.Pos, name string) {
		fmt.Printf("%s: %s has no doc comment\n", files.Position(at), name)
		missing++
	}
	for _, folder := range os.Args[1:] {
		packages, err := parser.ParseDir(files, folder,
			func(f os.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments)
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		for name, parsed := range packages {
			documented := false
			for _, file := range parsed.Files {
				documented = documented || file.Doc != nil
				for _, declaration := range file.Decls {
					check(declaration, report)
				}
			}
			if !documented {
				report(token.NoPos, "package "+name)
			}
		}
	}
	if missing > 0 {
		os.Exit(1)
	}
}

func check(declaration ast.Decl, report func(token.Pos, string)) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			report(d.Pos(), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					report(s.Pos(), s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					report(s.Pos(), s.Names[0].Name)
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	receiver := d.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}
