// Command shown checks what shows the promises. A comment in front of a group of guarantees in
// lock_test.go is its name, and may name tests elsewhere. Each group must be named in italics in
// docs/guarantees.md, behind "Shown by:", and each name there be a group. The tests must exist, and
// so must those that docs name.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	page = "docs/guarantees.md"
	list = "lock_test.go"
)

var (
	comment  = regexp.MustCompile(`(?m)^\t\t// ([A-Z][^,:\n]*)((?:.*\n\t\t//)*.*)`)
	proof    = regexp.MustCompile(`(?s)Shown by: (.*?)\.\n`)
	italics  = regexp.MustCompile(`\*([^*]+)\*`)
	function = regexp.MustCompile(`\bTest\w+`)
	cited    = regexp.MustCompile("`(Test\\w+)(?:/[^`]*)?`")
	missing  int
)

func main() {
	code := testCode()
	exists := func(where, test string) {
		if !strings.Contains(code, "func "+test+"(") {
			complain(where, "there is no %s", test)
		}
	}
	var groups, named []string
	for _, match := range comment.FindAllStringSubmatch(read(list), -1) {
		groups = append(groups, match[1])
		for _, test := range function.FindAllString(match[2], -1) {
			exists(list, test)
		}
	}
	for _, shown := range proof.FindAllStringSubmatch(read(page), -1) {
		for _, match := range italics.FindAllStringSubmatch(shown[1], -1) {
			named = append(named, strings.Join(strings.Fields(match[1]), " "))
		}
	}
	for _, group := range groups {
		if !slices.Contains(named, group) {
			complain(list, "%s does not name the group %q", page, group)
		}
	}
	for _, group := range named {
		if !slices.Contains(groups, group) {
			complain(page, "%s has no group %q", list, group)
		}
	}
	pages, _ := filepath.Glob("docs/*.md")
	for _, path := range pages {
		for _, match := range cited.FindAllStringSubmatch(read(path), -1) {
			exists(path, match[1])
		}
	}
	if missing > 0 || len(groups) == 0 || len(pages) == 0 {
		os.Exit(1)
	}
}

func complain(where, what string, arguments ...any) {
	missing++
	fmt.Printf("%s: %s\n", where, fmt.Sprintf(what, arguments...))
}

func read(path string) string {
	text, err := os.ReadFile(path)
	exit(err)
	return string(text)
}

// testCode is the Go code that can show something.
func testCode() string {
	var code strings.Builder
	exit(filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(path))
		}
		return err
	}))
	return code.String()
}

func exit(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
}
