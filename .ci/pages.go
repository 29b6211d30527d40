// Command pages checks the pages that people read. Below docs no page has more than 200 lines, but
// that of the benchmarks; no line of prose more than 120 columns; no sentence more than 30 words;
// no cell of a table more than 20. No sentence begins with "Who". A link between pages, and the
// name of a page in the code, lead to a page and a heading that exist.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	pageLines     = 200
	pageColumns   = 120
	sentenceWords = 30
	cellWords     = 20
)

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	named   = regexp.MustCompile(`docs/[\w/-]+\.md(#[\w-]+)?`)
	ends    = regexp.MustCompile(`[.!?][)*"]*\s+`)
	item    = regexp.MustCompile(`^\s*([-*]|\d+\.)\s`)
	literal = regexp.MustCompile("`[^`]*`")
	address = regexp.MustCompile(`\]\([^)]*\)`)
	found   int
)

func main() {
	if err := filepath.WalkDir(".", visit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if found > 0 {
		os.Exit(1)
	}
}

func visit(path string, entry fs.DirEntry, err error) error {
	if err != nil || entry.IsDir() {
		if name := entry.Name(); name == ".git" || name == "testdata" || name == "node_modules" {
			return filepath.SkipDir
		}
		return err
	}
	switch filepath.Ext(path) {
	case ".md":
		text := read(path)
		for _, match := range linked.FindAllStringSubmatch(prose(text), -1) {
			leads(path, filepath.Dir(path), match[1])
		}
		if filepath.Dir(path) == "docs" {
			plain(path, text)
		}
	case ".go", ".yml", ".yaml":
		for _, name := range named.FindAllString(read(path), -1) {
			leads(path, ".", name)
		}
	}
	return nil
}

func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return string(text)
}

func complain(path, what string, arguments ...any) {
	found++
	fmt.Printf("%s: %s\n", path, fmt.Sprintf(what, arguments...))
}

// prose is a page without its blocks of code.
func prose(text string) string {
	var kept []string
	code := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code && !strings.HasPrefix(line, "    ") {
			kept = append(kept, line)
			continue
		}
		kept = append(kept, "")
	}
	return strings.Join(kept, "\n")
}

// leads looks where a link leads.
func leads(path, folder, link string) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return
	}
	file, anchor, _ := strings.Cut(link, "#")
	to := path
	if file != "" {
		to = filepath.Join(folder, file)
	}
	if _, err := os.Stat(to); err != nil {
		complain(path, "%s does not exist", link)
	} else if anchor != "" && !strings.Contains(anchors(read(to)), "\n"+anchor+"\n") {
		complain(path, "%s: no such heading", link)
	}
}

// anchors are the headings of a page as GitHub spells them in links.
func anchors(text string) string {
	var all strings.Builder
	all.WriteString("\n")
	for _, line := range strings.Split(prose(text), "\n") {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
				switch {
				case r == ' ':
					all.WriteRune('-')
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					all.WriteRune(r)
				}
			}
			all.WriteString("\n")
		}
	}
	return all.String()
}

func plain(path, text string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > pageLines && path != "docs/benchmarks.md" {
		complain(path, "%d lines, more than %d", len(lines), pageLines)
	}
	var paragraph string
	end := func() {
		sentences(path, paragraph)
		paragraph = ""
	}
	lines = strings.Split(prose(text)+"\n\n", "\n")
	for i, line := range lines {
		if isRow(line) && (i == 0 || !isRow(lines[i-1])) && strings.Trim(lines[i+1], "|-: ") != "" {
			complain(path, "line %d: a table without a head", i+1)
		}
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "|"):
			end()
			for _, cell := range strings.Split(trimmed, "|") {
				if n := words(cell); n > cellWords {
					complain(path, "line %d: a cell of %d words: %.60s", i+1, n, strings.TrimSpace(cell))
				}
			}
			continue
		case trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "!["):
			end()
			continue
		case item.MatchString(line):
			end()
		}
		if n := utf8.RuneCountInString(line); n > pageColumns && strings.Contains(strings.TrimSpace(line), " ") {
			complain(path, "line %d: %d columns, more than %d", i+1, n, pageColumns)
		}
		paragraph += line + " "
	}
	end()
}

func isRow(line string) bool { return strings.HasPrefix(line, "|") }

func sentences(path, paragraph string) {
	paragraph = item.ReplaceAllString(address.ReplaceAllString(literal.ReplaceAllString(paragraph, "x"), "]"), "")
	for _, sentence := range ends.Split(paragraph, -1) {
		sentence = strings.TrimLeft(sentence, "*[ ")
		if n := words(sentence); n > sentenceWords {
			complain(path, "a sentence of %d words: %.60s", n, sentence)
		}
		if strings.HasPrefix(sentence, "Who ") {
			complain(path, "begins with Who: %.60s", sentence)
		}
	}
}

// words counts what a reader reads: code is one word.
func words(text string) (n int) {
	for _, field := range strings.Fields(address.ReplaceAllString(literal.ReplaceAllString(text, "x"), "]")) {
		if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}
