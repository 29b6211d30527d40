// Package label writes and reads what a session shows to others of what it locks, in the server's
// own views:
//
//	#4711 [sku:42 sku:43] (inventory.sku 42)@1795361282.4
//
// A label begins with the number of the client's process. Keys of slots are in brackets, rows of a
// caller's table in parentheses. So is the key of a semaphore, behind the number of its permits:
// (10 api), in its queue 1. What is shared has an s in front: s[sku:42]. A session that has renewed
// its locks says at the end since when it has them, in seconds since 1970.
//
// Bytes that have a meaning here, that SQL would have to quote, or that a server would replace, are
// written as in URLs. A label that was cut ends inside a bracket. A label is a hint: the server's
// lock tables say what is locked.
package label

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
)

// longest bounds a bracket, in bytes: it travels with every lock.
const longest = 256

const sharedPrefix = "s"

// Begin begins every label of this process.
var Begin = "#" + strconv.Itoa(os.Getpid()) + " "

// Of is the bracket of a label that shows request.
func Of(request dialects.Request) string {
	shared := ""
	if request.Shared {
		shared = sharedPrefix
	}
	if len(request.Keys) > 0 && request.AnyOne == "" {
		return bracket(shared+"[", request.Keys, "]")
	}
	if request.AnyOne != "" {
		return bracket("("+strconv.Itoa(len(request.Values))+" ", request.Keys, ")")
	}
	table := shared + "(" + escape(request.Table) + "." + strings.ReplaceAll(escape(request.Column), ".", "%2E")
	if request.Hidden {
		return bracket(table, nil, ")")
	}
	values := make([]string, 0, min(len(request.Values), longest))
	for _, value := range request.Values[:cap(values)] {
		values = append(values, value.Text)
	}
	return bracket(table+" ", values, ")")
}

// bracket leaves the bracket open when there is no room for all items.
func bracket(opening string, items []string, closing string) string {
	var b strings.Builder
	b.WriteString(opening)
	for i, item := range items {
		if i > 0 {
			b.WriteByte(' ')
		}
		item = escape(item)
		if room := longest - b.Len(); len(item) >= room {
			b.WriteString(item[:max(room, 0)])
			return b.String()
		}
		b.WriteString(item)
	}
	b.WriteString(closing)
	return b.String()
}

func escape(text string) string {
	const hex = "0123456789ABCDEF"
	plain := true
	for i := 0; i < len(text) && plain; i++ {
		plain = isPlain(text[i])
	}
	if plain {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(text[:min(len(text), longest)]) {
		if isPlain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("_.,:;/=~!&-{}|<>^$", c) >= 0
}

// unescape undoes escape. It drops an escape that was cut.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		if i+2 >= len(text) {
			break
		}
		if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
			b.WriteByte(byte(c))
		}
		i += 2
	}
	return b.String()
}

// Since is a label that outlives the transaction in which it was shown, which began then, in
// seconds since 1970. It stays, once it says that, and where there is no room.
func Since(text string, begun float64) string {
	at, since := strings.LastIndexByte(text, '#'), SinceMark(begun)
	if at < 0 || strings.Contains(text[at:], "@") || len(text)+len(since) > longestShown {
		return text
	}
	return text + since
}

// SinceMark is the end of a label that says since when.
func SinceMark(begun float64) string { return "@" + strconv.FormatFloat(begun, 'f', 1, 64) }

// longestShown is how much the server shows.
const longestShown = 63

// Label is what a session says of itself.
type Label struct {
	Before  string // the text in front of it
	Process int    // of the client; 0: there is no label
	Since   time.Time
	shown   []shown
}

// shown is a bracket.
type shown struct {
	table, column string   // of rows
	items         []string // keys of slots, or values of the column
	cut           string   // the beginning of one more, behind which others may be missing
}

// Read takes apart a text that ends with a label. What it does not know, as of other versions, it
// leaves out.
func Read(text string) (l Label) {
	at := strings.LastIndexByte(text, '#')
	number, rest, _ := strings.Cut(text[at+1:], " ")
	number, _, _ = strings.Cut(number, "+")
	process, err := strconv.Atoi(number)
	if at < 0 || err != nil {
		return Label{Before: text}
	}
	l = Label{Before: text[:at], Process: process}
	if last := strings.LastIndexByte(rest, '@'); last >= 0 {
		if seconds, err := strconv.ParseFloat(rest[last+1:], 64); err == nil && seconds > 0 && seconds < 1e11 {
			l.Since = time.UnixMicro(int64(seconds * 1e6))
		}
		rest = rest[:last]
	}
	for {
		rest = strings.TrimPrefix(rest, sharedPrefix) // the server says who shares
		if len(rest) < 2 || rest[0] != '[' && rest[0] != '(' {
			return l
		}
		end := strings.IndexAny(rest, "])")
		if end < 0 {
			l.shown = append(l.shown, readBracket(rest[0] == '(', rest[1:], true))
			return l
		}
		l.shown = append(l.shown, readBracket(rest[0] == '(', rest[1:end], false))
		_, rest, _ = strings.Cut(rest[end:], " ")
	}
}

func readBracket(ofRows bool, body string, cut bool) (c shown) {
	c.items = strings.Split(body, " ")
	if ofRows {
		name := c.items[0]
		c.items = c.items[1:]
		if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
			c.table, c.column = unescape(name[:dot]), unescape(name[dot+1:])
		} else { // of a semaphore, whose table has its name
			c.items = nil
		}
	}
	for i, item := range c.items {
		c.items[i] = unescape(item)
	}
	if last := len(c.items) - 1; cut && last >= 0 {
		c.items, c.cut = c.items[:last], wholeRunes(c.items[last])
	}
	return c
}

// Rows are the rows of callers' tables that the session says it locks.
func (l Label) Rows(yield func(table, column, value string)) {
	for _, c := range l.shown {
		for _, value := range c.items {
			if c.table != "" {
				yield(c.table, c.column, value)
			}
		}
	}
}

// Key is what the session named whose slot that is, as far as it says so: a hidden key is empty.
// The beginning of a key, "…" behind it, may belong to any slot. It counts alone, where the session
// has no other slot.
func (l Label) Key(slot string, slots int, alone bool) string {
	for _, c := range l.shown {
		for _, item := range c.items {
			if c.table == "" && item != "" && strconv.Itoa(dialects.SlotOf(item, slots)) == slot {
				return item
			}
		}
	}
	if alone && len(l.shown) == 1 && len(l.shown[0].items) == 0 && l.shown[0].cut != "" &&
		!strings.HasPrefix(l.shown[0].cut, HiddenPrefix) {
		return l.shown[0].cut + "…"
	}
	return ""
}

// And is a label that also says what an older one of the same session does.
func (l Label) And(older Label) Label {
	l.Process = cmp.Or(l.Process, older.Process)
	l.shown = append(l.shown, older.shown...)
	return l
}

// wholeRunes drops the beginning of a character that was cut.
func wholeRunes(text string) string {
	for i := max(len(text)-utf8.UTFMax+1, 0); i < len(text); i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRuneInString(text[i:]) {
			return text[:i]
		}
	}
	return text
}
