package inspection

import (
	"encoding/json"
	"fmt"
	"net"
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
	Quoted    string // the table of the row behind the turnstile; empty: that is not known, or there is none
	Number    int64  // of the turnstile in front of a caller's row
	Awaits    bool   // the session awaits a row, whether or not its holder uses txlock
	Awaiting  time.Time
	Blockers  []int // of the session that awaits a row
	Now       time.Time

	label label.Label
}

// entries puts the picture together.
func entries(texts []string, slots int) (entries []dialects.Entry, err error) {
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
	for _, l := range lines {
		if row, known := callers[l.Number]; known && l.Number != 0 {
			l.Table, l.Column, l.Value = row.Table, row.Column, row.Value
			l.Quoted, _ = sqltext.QuoteTable(row.Table)
		}
		if l.Quoted != "" {
			turnstiles[l.PID]++
		}
	}
	var strangers []dialects.Entry
	for _, l := range lines {
		if l.Quoted == "" {
			continue
		}
		alone := turnstiles[l.PID] == 1
		if l.Kind == dialects.KindRow && l.Column == "" {
			l.Key = l.label.Key(l.Value, slots, alone)
		}
		if !l.Waits && l.locks() {
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
func (l *line) locks() bool {
	return l.Awaits && (strings.Contains(l.Statement, sqltext.Tag) || // of several, of which the server shows some
		strings.Contains(l.Statement, " from "+l.Quoted+" where ") && strings.Contains(l.Statement, " for "))
}
