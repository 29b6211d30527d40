// Command width lists lines that are too wide to read side by side: Go code of more than 120
// columns, Go comments of more than 100, and lines of other pages of more than 120. It also lists
// such pages of more than 130 lines. A tab counts as 4 columns. The arguments are the folders and
// files to check.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	codeColumns    = 120
	commentColumns = 100
	pageColumns    = 120
	pageLines      = 130
)

func main() {
	wide := 0
	for _, top := range os.Args[1:] {
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if name := entry.Name(); name == ".git" || name == "testdata" {
					return filepath.SkipDir
				}
				return nil
			}
			if !strings.HasSuffix(path, ".go") && path != top {
				return nil
			}
			text, err := os.ReadFile(path)
			wide += check(path, string(text))
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	if wide > 0 {
		os.Exit(1)
	}
}

func check(path, text string) (wide int) {
	code := strings.HasSuffix(path, ".go")
	if code && strings.Contains("\n"+text, "\n// Code generated ") {
		return 0
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		limit := pageColumns
		if code {
			limit = codeColumns
			if strings.HasPrefix(strings.TrimLeft(line, "\t "), "//") {
				limit = commentColumns
			}
		}
		columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if columns > limit {
			fmt.Printf("%s:%d: %d columns, more than %d\n", path, i+1, columns, limit)
			wide++
		}
	}
	if !code && len(lines) > pageLines {
		fmt.Printf("%s: %d lines, more than %d\n", path, len(lines), pageLines)
		wide++
	}
	return wide
}
