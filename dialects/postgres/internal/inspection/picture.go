package inspection

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// line is a session in a transaction, or a prepared one, and an advisory lock that it has or waits
// for: a turnstile.
type line struct {
	dialects.Entry
	PID, Port int
	Turnstile string // names it; empty: there is none
	Ours      bool   // it stands in front of a row of ours
	Number    int64  // of that of a caller's row
	Awaits    bool   // the session awaits a row, whether or not its holder uses txlock
	Awaiting  time.Time
	Blockers  []int // of the session that awaits a row
	Now       time.Time

	label label.Label
}

// entries puts the picture together.
func (t tables) entries(texts []string, slots int) (entries []dialects.Entry, err error) {
	var lines []*line
	if err := json.Unmarshal([]byte("["+strings.Join(texts, ",")+"]"), &lines); err != nil {
		return nil, fmt.Errorf("read the server's views: %w", err)
	}
	sessions, callers := map[int]dialects.Party{}, map[int64]dialects.Entry{}
	for _, l := range lines {
		l.read()
		sessions[l.PID] = l.Party
		l.label.Rows(func(table, column, value string) {
			number := sqltext.Turnstile(table, column, value)
			callers[number] = dialects.Entry{Table: table, Column: column, Value: value}
		})
	}
	turnstiles := map[int]int{} // how many each session has or waits for
	lines = slices.DeleteFunc(lines, func(l *line) bool {
		row, known := callers[l.Number]
		if known && l.Number != 0 {
			l.Table, l.Column, l.Value = row.Table, row.Column, row.Value
		}
		if known = known && l.Number != 0 || l.Ours; known {
			turnstiles[l.PID]++
		}
		return !known
	})
	var strangers []dialects.Entry
	for _, l := range lines {
		alone := turnstiles[l.PID] == 1
		if l.Kind == dialects.KindRow && l.Column == "" {
			l.Key = l.label.Key(l.Value, slots, alone)
		}
		if !l.Waits && t.locks(l) {
			// It has passed the turnstile, and waits in front of all at the turnstile: somebody has
			// the row who did not pass. Of several rows, which one it waits for is not known.
			l.Waits = true
			for _, pid := range l.Blockers {
				if party, there := sessions[pid]; there && alone {
					stranger := l.Entry
					stranger.Waits, stranger.Party = false, party
					strangers = append(strangers, stranger)
				}
			}
		}
		if l.Waits {
			l.lasts(l.Awaiting)
		}
		entries = append(entries, l.Entry)
	}
	return append(entries, strangers...), nil
}

// read takes the label apart, and pins the transaction for End: by the turnstile, and by when it
// began, which is what stays when it is renewed.
func (l *line) read() {
	l.label = label.Read(l.Application)
	l.Application, l.Process = l.label.Before, l.label.Process
	if l.Port > 0 {
		l.Host = net.JoinHostPort(l.Host, strconv.Itoa(l.Port))
	}
	if !l.label.Since.IsZero() {
		l.Since = l.label.Since
	}
	l.lasts(l.Since)
	l.Transaction += " " + l.Turnstile + " "
	if !l.Since.IsZero() {
		l.Transaction += label.SinceMark(float64(l.Since.UnixMicro()) / 1e6)
	}
}

func (l *line) lasts(since time.Time) {
	if l.Since, l.For = since, 0; !since.IsZero() {
		l.For = max(l.Now.Sub(since), 0)
	}
}

// locks tells whether the session runs the statement that locks the row, and waits for it. Else its
// work may wait for another row.
func (t tables) locks(l *line) bool {
	quoted, _ := sqltext.QuoteTable(l.Table)
	switch {
	case l.Kind == dialects.KindSemaphore:
		quoted = t.permits
	case l.Kind == dialects.KindElection:
		quoted = t.leaders
	case l.Table == "":
		quoted = t.slots
	}
	return l.Awaits && (strings.Contains(l.Statement, sqltext.Tag) || // of several, of which the server shows some
		strings.Contains(l.Statement, " from "+quoted+" where ") && strings.Contains(l.Statement, " for "))
}
