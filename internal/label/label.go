// Package label writes and reads what a session shows to others of what it locks, in the server's
// own views:
//
//	#4711+37 [sku:42 sku:43]+12ms (inventory.sku 42)
//
// A label begins with the number of the client's process. Behind it may follow how many more
// callers of that process wait for what the first bracket shows, without a session. Keys of slots
// are in brackets, rows of a caller's table in parentheses. So is the key of a semaphore, behind
// the number of its permits: (10 api). In its queue that is 1. What is shared has an s in front: s[sku:42]. Behind a
// bracket may follow when the lock was granted: how long after the begin of the transaction (+), or
// in seconds since 1970 (@).
//
// Bytes that have a meaning here, that SQL would have to quote, or that a server would replace, are
// written as in URLs. A label that was cut ends inside a bracket. A label is a hint: the server's
// lock tables say what is locked.
package label

import (
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

// Process begins every label of this process.
var Process = "#" + strconv.Itoa(os.Getpid())

// Begin begins the label of a session of this process. Behind the session wait that many callers.
func Begin(behind int) string {
	if behind == 0 {
		return Process + " "
	}
	return Process + "+" + strconv.Itoa(behind) + " "
}

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

// Read takes apart a text that ends with a label: what is in front of the label, the number of the
// client's process, and the brackets. Without a label, process is 0 and before is the whole text.
func Read(text string) (before string, process int, brackets []dialects.Shown) {
	at := strings.LastIndexByte(text, '#')
	begin, rest, _ := strings.Cut(text[at+1:], " ")
	number, behind, _ := strings.Cut(begin, "+")
	process, err := strconv.Atoi(number)
	if at < 0 || err != nil {
		return text, 0, nil
	}
	for {
		rest = strings.TrimPrefix(rest, sharedPrefix) // the server says who shares
		if len(rest) < 2 || rest[0] != '[' && rest[0] != '(' {
			break
		}
		var c dialects.Shown
		c, rest = readBracket(rest)
		brackets = append(brackets, c)
	}
	if count, err := strconv.ParseUint(behind, 10, 31); err == nil && brackets != nil {
		brackets[0].Behind = int(count)
	}
	return text[:at], process, brackets
}

// longestShown is how much the server shows.
const longestShown = 63

// Since is a label that outlives the transaction that it was shown in, which began then, in seconds
// since 1970: grants that it counts from there are counted from 1970. A grant for which there is no
// room is left out.
func Since(text string, begun float64) string {
	at := strings.LastIndexByte(text, '#')
	begin, rest, found := strings.Cut(text[at+1:], " ")
	if at < 0 || !found {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:at+1] + begin + " ")
	for rest != "" {
		end := strings.IndexAny(rest, "])+@")
		if end < 0 {
			end = len(rest)
		}
		closed := strings.TrimLeft(rest[end:], "])")
		b.WriteString(strings.TrimSuffix(rest, closed))
		grant, next, more := strings.Cut(closed, " ")
		if !strings.HasPrefix(grant, "@") {
			var c dialects.Shown
			readGrant(&c, grant)
			grant = "@" + strconv.FormatFloat(begun+c.After.Seconds(), 'f', 1, 64)
		}
		if b.Len()+len(grant) <= longestShown {
			b.WriteString(grant)
		}
		if rest = next; more {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// readBracket reads the bracket that text begins with.
func readBracket(text string) (c dialects.Shown, rest string) {
	rows := text[0] == '('
	end := strings.IndexAny(text, "])+@")
	if end < 0 {
		end = len(text)
	}
	body, rest := text[1:end], text[end:]
	if closed := strings.TrimLeft(rest, "])"); closed != rest {
		rest = closed
	} else {
		c.Cut = true
	}
	grant, rest, _ := strings.Cut(rest, " ")
	readGrant(&c, grant)
	c.Items = strings.Split(body, " ")
	if rows {
		name := c.Items[0]
		c.Items = c.Items[1:]
		if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
			c.Table, c.Column = unescape(name[:dot]), unescape(name[dot+1:])
		} else {
			c.Permits, _ = strconv.Atoi(name)
		}
	}
	for i, item := range c.Items {
		c.Items[i] = unescape(item)
	}
	if last := len(c.Items) - 1; c.Cut && last >= 0 {
		c.Items[last] = wholeRunes(c.Items[last])
	}
	return c, rest
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

func readGrant(c *dialects.Shown, text string) {
	if after, ok := strings.CutPrefix(text, "+"); ok {
		number, complete := strings.CutSuffix(after, "ms") // the server may have cut it
		milliseconds, err := strconv.ParseInt(number, 10, 64)
		c.After, c.Granted = time.Duration(milliseconds)*time.Millisecond, complete && err == nil
	}
	if at, ok := strings.CutPrefix(text, "@"); ok {
		seconds, err := strconv.ParseFloat(at, 64)
		c.At, c.Granted = time.UnixMicro(int64(seconds*1e6)), err == nil
	}
}
