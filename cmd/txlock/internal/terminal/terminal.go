// Package terminal tells what the command must know about its terminal, such as width and colours.
package terminal

import (
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Is reports whether f is a terminal.
func Is(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Width is the number of columns of f, or 0 if f is no terminal.
func Width(f *os.File) int {
	width, _ := Size(f)
	return width
}

// Size is the number of columns and lines of f. Both are 0 if f is no terminal.
func Size(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Style writes text in colours, or without them.
type Style bool

// StyleOf is the Style for f: in colours on a terminal that has them, unless NO_COLOR is set
// (no-color.org).
func StyleOf(f *os.File) Style {
	return Style(Is(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != "")
}

// The renditions that the command uses, by their numbers in ECMA-48.
const (
	Bold   = "1"
	Faint  = "2"
	Red    = "1;31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
)

// In writes text in one of these renditions.
func (s Style) In(way, text string) string {
	if !bool(s) || text == "" {
		return text
	}
	return "\x1b[" + way + "m" + text + "\x1b[0m"
}

// Clean turns a foreign text into one line that cannot control the terminal.
func Clean(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, text)
}

// Columns is the width of a text on a terminal. Chinese characters and most emoji take two columns.
func Columns(text string) (columns int) {
	for _, r := range text {
		columns += columnsOf(r)
	}
	return columns
}

func columnsOf(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case r == '\ufe0f': // makes the character before it an emoji, with the width of one
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x1160 && r <= 0x11ff:
		// joins the character before it, as the second half of a Korean syllable does
		return 0
	case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cut shortens text to at most most columns.
func Cut(text string, most int) string {
	if Columns(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	taken := 1 // for the ellipsis
	for at, r := range text {
		if taken += columnsOf(r); taken > most {
			return text[:at] + "…"
		}
	}
	return text
}

// Fill adds spaces to the end of text until it has the given columns.
func Fill(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-Columns(text)))
}

// Wrap breaks text between words into lines that fit into most columns, indented by indent columns.
// If most is 0, there is one line.
func Wrap(text string, most, indent int) (lines []string) {
	const least = 20 // columns, or it is not worth it
	room := most - indent
	if room < least {
		return []string{text}
	}
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && Columns(line)+1+Columns(word) > room {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
