// Package label writes and reads what a session shows to others of what it locks, in the server's
// own views:
//
//	#4711 [sku:42 sku:43] s(inventory.sku 42)@1795361282.4
//
// A label begins with the number of the client's process. Keys of slots are in brackets, rows of a
// caller's table in parentheses. So is the key of a semaphore, behind the number of its permits:
// (10 api), in its queue 1. What is shared has an s in front. A session that has renewed its locks
// says at the end since when it has them, in seconds since 1970.
//
// Bytes that have a meaning here or in SQL, or that a server would replace, are written as in URLs.
// A label that was cut ends inside a bracket. It is a hint: the server says what is locked.
package label

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// longest bounds a bracket, in bytes: with an s in front it travels with every lock.
const longest = 255

// Begin begins every label of this process.
var Begin = "#" + strconv.Itoa(os.Getpid()) + " "

// Keys shows keys of slots.
func Keys(keys ...string) string { return bracket("[", keys, "]") }

// Permits shows the key of a semaphore of so many permits.
func Permits(n int, key string) string { return bracket("("+strconv.Itoa(n), []string{key}, ")") }

// Rows shows rows of a caller's table. Hidden ones have no values.
func Rows(table, column string, values ...string) string {
	return bracket("("+escape(table)+"."+strings.ReplaceAll(escape(column), ".", "%2E"), values, ")")
}

// bracket leaves the bracket open when there is no room for all items.
func bracket(opening string, items []string, closing string) string {
	text := append(make([]byte, 0, longest), opening...)
	for _, item := range items {
		if text[len(text)-1] != '[' {
			text = append(text, ' ')
		}
		if text = append(text, escape(item)...); len(text) >= longest {
			return string(text[:longest])
		}
	}
	return string(append(text, closing...))
}

// plain are bytes that URLs escape, and labels need not, and the other way round.
var plain = strings.NewReplacer("%2F", "/", "%2C", ",", "%3B", ";", "@", "%40")

func escape(text string) string { return plain.Replace(url.PathEscape(text[:min(len(text), longest)])) }

// unescape undoes escape. It drops an escape that was cut.
func unescape(text string) string {
	if last := strings.LastIndexByte(text, '%'); last >= 0 && last+3 > len(text) {
		text = text[:last]
	}
	if whole, err := url.PathUnescape(text); err == nil {
		return whole
	}
	return text
}

// Since is a label that outlives its transaction, which began then, in seconds since 1970. It
// stays, once it says that, and where the server has no room.
func Since(text string, begun float64) string {
	const room = 63
	at, since := strings.LastIndexByte(text, '#'), SinceMark(begun)
	if at < 0 || strings.Contains(text[at:], "@") || len(text)+len(since) > room {
		return text
	}
	return text + since
}

// SinceMark is the end of a label that says since when.
func SinceMark(begun float64) string { return "@" + strconv.FormatFloat(begun, 'f', 1, 64) }

// Label is what a session says of itself. The server says who shares.
type Label struct {
	Before  string // the text in front of it
	Process int    // of the client; 0: there is no label
	Since   time.Time
	shown   []shown
}

// shown is a key of a slot, or a row of a caller's table.
type shown struct {
	table, column, text string
	cut                 bool // text is a beginning, behind which others may be missing
}

var brackets = regexp.MustCompile(`([\[(])([^\])]+)([\])]?)`)

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
	rest, since, _ := strings.Cut(rest, "@")
	if seconds, err := strconv.ParseFloat(since, 64); err == nil && seconds > 0 && seconds < 1e11 {
		l.Since = time.UnixMicro(int64(seconds * 1e6))
	}
	for _, bracket := range brackets.FindAllStringSubmatch(rest, -1) {
		items, one := strings.Split(bracket[2], " "), shown{}
		if bracket[1] == "(" {
			dot := strings.LastIndexByte(items[0], '.')
			if dot < 0 { // of a semaphore, whose table has its name
				continue
			}
			one.table, one.column, items = unescape(items[0][:dot]), unescape(items[0][dot+1:]), items[1:]
		}
		for i, item := range items {
			one.text, one.cut = unescape(item), bracket[3] == "" && i == len(items)-1
			l.shown = append(l.shown, one)
		}
	}
	return l
}

// Rows are the rows of callers' tables that the session says it locks.
func (l Label) Rows(yield func(table, column, value string)) {
	for _, s := range l.shown {
		if s.table != "" && !s.cut {
			yield(s.table, s.column, s.text)
		}
	}
}

// Key is what the session named whose slot that is, as far as it says so: a hidden key is empty.
// The beginning of a key, "…" behind it, may be of any slot, and counts where there is no other.
func (l Label) Key(slot string, slots int, alone bool) string {
	for _, s := range l.shown {
		beginning := strings.ToValidUTF8(s.text, "") // of a character that was cut, nothing
		switch {
		case s.table != "" || s.text == "":
		case !s.cut && strconv.Itoa(dialects.SlotOf(s.text, slots)) == slot:
			return s.text
		case s.cut && alone && len(l.shown) == 1 && beginning != "" && !strings.HasPrefix(beginning, hidden):
			return beginning + "…"
		}
	}
	return ""
}

// And is a label that also says what an older one of the same session does.
func (l Label) And(older Label) Label {
	l.Process = cmp.Or(l.Process, older.Process)
	l.shown = append(l.shown, older.shown...)
	return l
}

// Hash is how the tables of semaphores and of elections know a name, whether the client hides it or
// not.
func Hash(name string) string {
	hash := sha256.Sum256([]byte(name))
	return hex.EncodeToString(hash[:])
}

const hidden = "~"

// Hidden is what is shown instead of a key of that slot, or of a name of that hash.
func Hidden(of string) string { return hidden + of[:min(len(of), 12)] }

// ASCII writes a name in ASCII, for people, with =2A for %2A: all of it is plain to each server.
// The end of a long name is left out.
func ASCII(name string) string {
	const most, shown = 191, 100
	text := toASCII.Replace(url.PathEscape(name))
	if len(text) > most {
		text = text[:shown] + "#"
	}
	return text
}

var toASCII = strings.NewReplacer("%2F", "/", "%", "=", "=", "=3D")

// Known undoes ASCII. Of a long name it is the beginning, and "…". A hidden one has no name in the
// table: then it is what stands for that.
func Known(hash, name string) string {
	text, _, cut := strings.Cut(name, "#")
	switch text = unescape(strings.ReplaceAll(text, "=", "%")); {
	case name == "":
		return Hidden(hash) + "…"
	case cut:
		text += "…"
	}
	return text
}
