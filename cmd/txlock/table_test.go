package main

// This file is in package main so that it tests without running the command, and so that the go
// command sees that the tests depend on it.

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
	"github.com/txlock/txlock/internal/holdings"
)

// No line is wider than the terminal, however narrow that is. A line still shows which lock it is
// about.
func TestTableFits(t *testing.T) {
	now := time.Now()
	holder := txlock.Session{
		ID: "4711", Key: "käse:42", Application: "shop", Host: "db-worker-3.example:51234", Process: 99, User: "app",
		Since: now, For: time.Hour,
		Statement: "UPDATE inventory SET stock = stock - 1 WHERE sku = 42",
	}
	waiter := txlock.Session{ID: "4712", Key: "another", For: 1234 * time.Millisecond, Idle: true}
	table := tableOf([]txlock.Holding{
		{Row: "7", Key: "käse:42", Holder: &holder, Waiters: []txlock.Session{waiter}},
		{
			Row: "6", Key: "鍵を🔒" + strings.Repeat("鍵", 30),
			Holder: &txlock.Session{ID: "4713", For: time.Minute},
		},
		{Table: "inventory", Column: "sku", Row: strings.Repeat("9", 60), Holder: &waiter},
		{Row: "8"},
	}, nil)
	for width := 1; width < 250; width++ {
		lines := table.lines(width, 0, false)
		require.Len(t, lines, 6)
		for _, line := range lines {
			require.LessOrEqual(t, terminal.Columns(line), width)
		}
		if width >= 21 {
			require.Contains(t, lines[1], "käse:42")
		}
		if width >= 44 {
			for _, line := range lines[1:5] {
				require.Regexp(t, `(held|waits) +471[123]( |$)`, line, "who holds it is the question")
			}
		}
	}
	wide := table.lines(0, 0, false)
	const line = `^käse:42 +held +4711 +1h0m0s .* UPDATE inventory SET stock = stock - 1 WHERE sku = 42$`
	require.Regexp(t, line, wide[1])
	require.Regexp(t, `^  1\. another +waits +4712 +1\.2s +idle$`, wide[2])
	require.Regexp(t, `^鍵を🔒鍵{30} +held +4713 +1m0s$`, wide[3])
	require.Regexp(t, `^inventory\.sku=9{60} +held`, wide[4])
	require.Regexp(t, `^slot 8 +passes on$`, wide[5])
	before := func(line, part string) int { return terminal.Columns(line[:strings.Index(line, part)]) }
	require.Equal(t, before(wide[0], "SESSION"), before(wide[3], "4713"), "columns are where their headings are")
}

// Each session that shares a lock has a line.
func TestTableOfReaders(t *testing.T) {
	table := tableOf([]txlock.Holding{{
		Row: "7", Key: "sku", Readers: []txlock.Session{
			{ID: "1", Key: "sku", Shared: true, For: time.Minute}, {ID: "2", Key: "sku", Shared: true, For: time.Hour},
		},
		Waiters: []txlock.Session{{ID: "3", Key: "sku", For: time.Second}, {ID: "4", Key: "sku", Shared: true}},
	}}, nil)
	lines := table.lines(0, 0, false)
	require.Regexp(t, `^sku +shared +1 +1m0s +2$`, lines[1])
	require.Regexp(t, `^  and +shared +2 +1h0m0s$`, lines[2])
	require.Regexp(t, `^  1\. +waits +3 +1s$`, lines[3])
	require.Regexp(t, `^  2\. +waits to share +4$`, lines[4])
}

// The lock that is awaited longest comes first, then the lock that is held longest. What does not
// fit is counted.
func TestTableOrder(t *testing.T) {
	now := time.Now()
	of := func(row string, held time.Duration, waits ...time.Duration) txlock.Holding {
		h := txlock.Holding{Row: row, Holder: &txlock.Session{ID: "1", Since: now.Add(-held), For: held}}
		for _, wait := range waits {
			h.Waiters = append(h.Waiters, txlock.Session{ID: "2", Since: now.Add(-wait), For: wait})
		}
		return h
	}
	table := tableOf([]txlock.Holding{
		of("1", time.Second), of("2", time.Hour), of("3", time.Minute, time.Second),
		{Row: "4"},
		of("5", 2*time.Second, 0), of("6", time.Second, time.Minute, time.Second),
	}, nil)
	seenLater := of("8", time.Second)
	seenLater.Holder.For += time.Minute
	require.Zero(t, holdings.ByUrgency(of("7", time.Second), seenLater))
	var firsts []string
	for _, line := range table.lines(0, 0, false) {
		firsts = append(firsts, line[:6])
	}
	require.Equal(t, []string{
		"LOCK  ", "slot 6", "  1.  ", "  2.  ", "slot 3", "  1.  ", "slot 5", "  1.  ", "slot 2",
		"slot 1", "slot 4",
	}, firsts)

	require.Len(t, table.lines(0, 11, false), 11)
	lines := table.lines(0, 5, false)
	require.Len(t, lines, 5)
	require.Equal(t, "… 7 more lines", lines[4])
	for height := 1; height < 12; height++ {
		require.LessOrEqual(t, len(table.lines(80, height, false)), max(2, height))
	}
}

// A lock that a prepared transaction keeps is shown with the name of that.
func TestTableOfPrepared(t *testing.T) {
	table := tableOf([]txlock.Holding{
		{Key: "k", Holder: &txlock.Session{Prepared: "two\nphase", User: "shop"}, Waiters: []txlock.Session{{ID: "7"}}},
	}, nil)
	lines := table.lines(0, 0, false)
	require.Len(t, lines, 3)
	require.Regexp(t, `^k +prepared +two phase +1$`, lines[1])
	require.Equal(t, "the prepared transaction two phase", describe(txlock.Session{Prepared: "two\nphase"}))
}

// A holder that the server does not name is shown as such.
func TestTableOfUnnamedHolder(t *testing.T) {
	table := tableOf([]txlock.Holding{
		{Row: "7", Holder: &txlock.Session{}},
		{Row: "8", Holder: &txlock.Session{ID: "4711"}},
	}, nil)
	lines := table.lines(80, 0, false)
	require.Regexp(t, `^slot 7 +held +\?$`, lines[1])
	require.Len(t, lines, 3)
}

// A user who asks for keys sees that a row is about them, under whatever name it is held.
func TestLockOfAskedKey(t *testing.T) {
	for _, test := range []struct {
		key   string
		asked []string
		want  string
	}{
		{"", nil, "slot 8"},
		{"", []string{"sku:42"}, "slot 8 of sku:42"},
		{"sku:42", []string{"sku:42"}, "sku:42"},
		{"sku:…", []string{"sku:42"}, "sku:…"}, // cut short to fit
		{"other", []string{"sku:42"}, "other, in the slot of sku:42"},
		{"oth…", []string{"sku:42"}, "oth…, in the slot of sku:42"},
		{"", []string{"a\ab"}, "slot 8 of a?b"},
		{"", []string{"sku:42", "sku:43"}, "slot 8 of sku:42, sku:43"},
		{"sku:43", []string{"sku:42", "sku:43", "sku:44"}, "sku:43, in the slot of sku:42, sku:44"},
	} {
		require.Equal(t, test.want, lockName(txlock.Holding{Row: "8", Key: test.key}, test.asked))
	}
	require.Equal(t, "inventory.sku=8", lockName(txlock.Holding{Table: "inventory", Column: "sku", Row: "8"},
		[]string{"sku:42"}))
	leader := tableOf([]txlock.Holding{
		{Column: "election", Row: "scheduler", Key: "scheduler", Holder: &txlock.Session{ID: "4711"}},
	}, nil)
	require.Regexp(t, `^leader of scheduler +leads .*4711`, leader.lines(0, 0, false)[1])
}

// JSON says what is not known. It escapes what would command a terminal.
func TestPicture(t *testing.T) {
	var out strings.Builder
	require.NoError(t, writeJSON(&out, pictureOf(txlock.Session{Key: "a\u009b\u202e\U000e0041\x7f<ü鍵🔒\x1b"})))
	require.Contains(t, out.String(), `"key": "a\u009b\u202e\udb40\udc41\u007f<ü鍵🔒\u001b",`)
	require.Contains(t, out.String(), `"since": null,`+"\n  "+`"for_seconds": null,`+"\n  "+`"idle": null,`)
	var back struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(out.String()), &back))
	require.Equal(t, "a\u009b\u202e\U000e0041\x7f<ü鍵🔒\x1b", back.Key)

	out.Reset()
	known := txlock.Session{
		ID: "7", Since: time.Date(2026, 11, 21, 15, 4, 5, 0, time.UTC),
		For: 1500 * time.Millisecond,
	}
	require.NoError(t, writeJSON(&out, pictureOf(known)))
	require.Contains(t, out.String(), `"id": "7"`)
	require.Contains(t, out.String(), `"since": "2026-11-21T15:04:05Z",`+"\n  "+`"for_seconds": 1.5,`+
		"\n  "+`"idle": false`)

	out.Reset()
	require.NoError(t, writeJSON(&out, pictureOf(txlock.Session{ID: "7", Idle: true})))
	require.Contains(t, out.String(), `"idle": true`, "what the server did say")
}

// txlock's own statements are not shown; those of the work are.
func TestDoing(t *testing.T) {
	own := "SELECT /* txlock #4711 [sku:42] */ slot FROM txlock_slots WHERE slot = 7 FOR UPDATE"
	require.Empty(t, doing(txlock.Session{Statement: own}))
	require.Equal(t, "idle", doing(txlock.Session{Statement: own, Idle: true}))
	require.Equal(t, "idle", doing(txlock.Session{Idle: true}))
	require.Equal(t, "SELECT 1", doing(txlock.Session{Statement: "SELECT 1"}))
	require.Equal(t, "idle after SELECT 1", doing(txlock.Session{Statement: "SELECT 1", Idle: true}))
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)
	require.Equal(t, "15:04:05", clock(time.Date(2026, 11, 21, 15, 4, 5, 0, time.UTC), now))
	require.Equal(t, "Nov  1 23:59", clock(time.Date(2026, 11, 1, 23, 59, 5, 0, time.UTC), now))
}
