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
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// clock formats a time, without the date if it is of the last hours.
func clock(at time.Time) string {
	if time.Since(at).Abs() < 12*time.Hour {
		return at.UTC().Format("15:04:05 UTC")
	}
	return at.UTC().Format("2 Jan 2006 15:04:05 UTC")
}

// counted is a number with its noun: "1 lock", "2 000 locks".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// grouped sets digits in groups of three, apart by a narrow space that does not break.
func grouped(n int) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return digits
}
