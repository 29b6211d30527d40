// Package terminal is what the command knows of the terminal that it writes to: its width, its
// colours, and a screen that can be drawn again and again.
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

// Width is how many columns f has, 0 if it is no terminal.
func Width(f *os.File) int {
	width, _ := size(f)
	return width
}

func size(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Style writes text in colours, or as it is.
type Style bool

// StyleOf is how to write to f: in colours on a terminal that has some, unless NO_COLOR is set
// (no-color.org).
func StyleOf(f *os.File) Style {
	return Style(Is(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != "")
}

// The ways of writing that the command uses, by their numbers in ECMA-48.
const (
	Bold   = "1"
	Faint  = "2"
	Red    = "1;31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
)

// In writes text in one of the ways above.
func (s Style) In(way, text string) string {
	if !bool(s) || text == "" {
		return text
	}
	return "\x1b[" + way + "m" + text + "\x1b[0m"
}

// Clean makes one line of a text that somebody else has written, which cannot command the terminal.
func Clean(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, text)
}

// Columns is how many columns of a terminal text takes: two for each character of Chinese, say, and
// for most emoji.
func Columns(text string) (columns int) {
	for _, r := range text {
		columns += columnsOf(r)
	}
	return columns
}

func columnsOf(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case r == '\ufe0f': // makes an emoji of the character before it, which is then as wide as one
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x1160 && r <= 0x11ff:
		// joins what is before it, as the latter half of a Korean syllable does
		return 0
	case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cut shortens text to most columns.
func Cut(text string, most int) string {
	if Columns(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	taken := 1 // by the ellipsis
	for at, r := range text {
		if taken += columnsOf(r); taken > most {
			return text[:at] + "…"
		}
	}
	return text
}

// Fill is text with spaces behind it, so that it takes so many columns.
func Fill(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-Columns(text)))
}

// Wrap breaks text between words into lines that, with indent columns in front, fit into most
// columns; into one when most is 0.
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
