package serve

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// clean makes visible what a foreign text could hide: control characters, and those that change the
// direction of writing.
func clean(text string) string {
	hidden := func(r rune) bool {
		return r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
			r == '\u2028' || r == '\u2029' || r == '\ufeff'
	}
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case hidden(r):
			fmt.Fprintf(&b, "[U+%04X]", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cut shortens a text to this many characters.
func cut(text string, most int) string {
	count := 0
	for at := range text {
		if count++; count > most {
			return text[:at] + "…"
		}
	}
	return text
}

// lasted is a duration without digits that people do not need.
func lasted(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// clock formats a time, without the date if it is of the last hours.
func clock(at time.Time) string {
	if time.Since(at).Abs() < 12*time.Hour {
		return at.UTC().Format("15:04:05 UTC")
	}
	return at.UTC().Format("2 Jan 2006 15:04:05 UTC")
}

// counted is a number with its noun: "1 lock", "2 locks".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
