// Command shown checks that the tests which docs/guarantees.md names exist: sentences in quotes as
// strings of Go code, and names of Test functions.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const page = "docs/guarantees.md"

var (
	proofs   = regexp.MustCompile(`(?s)- Shown by:.*?\n\n`)
	sentence = regexp.MustCompile(`"([^"]+)"`)
	function = regexp.MustCompile("`(Test\\w+)`")
	spaces   = regexp.MustCompile(`\s+`)
)

func main() {
	text, err := os.ReadFile(page)
	exit(err)
	code, err := testCode()
	exit(err)
	named, missing := 0, 0
	look := func(what, in string) {
		if named++; !strings.Contains(code, in) {
			fmt.Printf("%s: no test has %s\n", page, what)
			missing++
		}
	}
	for _, proof := range proofs.FindAllString(string(text), -1) {
		proof = spaces.ReplaceAllString(proof, " ")
		for _, match := range sentence.FindAllStringSubmatch(proof, -1) {
			look(match[0], match[0])
		}
		for _, match := range function.FindAllStringSubmatch(proof, -1) {
			look(match[1], "func "+match[1]+"(")
		}
	}
	if missing > 0 || named == 0 {
		os.Exit(1)
	}
}

// testCode is the Go code that can show something.
func testCode() (string, error) {
	var code strings.Builder
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "internal/test/guarantees/") {
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	return code.String(), err
}

func exit(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
}
