package report

import (
	"bytes"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	parser "golang.org/x/net/html"

	"github.com/txlock/txlock/bench/results"
)

// pageOf makes the page of a run, and checks what holds for every page.
func pageOf(t *testing.T, run results.Run) string {
	t.Helper()
	var out bytes.Buffer
	if err := HTML(&out, run); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	balanced(t, page)
	for _, wrong := range []string{"NaN", "Inf", "%!", "ZgotmplZ", "<script", "http://", "https://", "src=", "url("} {
		if strings.Contains(page, wrong) {
			i := strings.Index(page, wrong)
			t.Errorf("the page contains %q: …%s…", wrong, page[max(0, i-60):min(len(page), i+60)])
		}
	}
	return page
}

// balanced checks that every element of the page is closed in order.
func balanced(t *testing.T, page string) {
	t.Helper()
	void := map[string]bool{"meta": true, "br": true}
	var open []string
	for tokens := parser.NewTokenizer(strings.NewReader(page)); ; {
		switch tokens.Next() {
		case parser.ErrorToken:
			if len(open) > 0 {
				t.Errorf("elements are never closed: %v", open)
			}
			return
		case parser.StartTagToken:
			if name, _ := tokens.TagName(); !void[string(name)] {
				open = append(open, string(name))
			}
		case parser.EndTagToken:
			name, _ := tokens.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				t.Fatalf("</%s> closes nothing: open are %v", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}

func TestPageHasAll(t *testing.T) {
	t.Parallel()
	run := generated()
	page := pageOf(t, run)
	for _, c := range run.Contestants {
		if !strings.Contains(page, html.EscapeString(c.Name)) {
			t.Errorf("the page says nothing of %q", c.Name)
		}
	}
	for _, text := range []string{
		"4711", "Some Processor", "innodb_flush_log_at_trx_commit = 1", "the server cannot be started: no image",
		"article 7: 41 sold", "not within 10.0 s", "1 July 2026", "2 lost", "1002 sales, but 999 pieces are gone",
		"A free key beside 500 callers", "Sales of one article by 256 callers", "1 ms away",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
	if path := os.Getenv("TXLOCK_REPORT"); path != "" { // so that somebody can look at it
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindingsAreComputed(t *testing.T) {
	t.Parallel()
	run := generated()
	all := newIndex(run).findings()
	if len(all) != 10 {
		t.Fatalf("there are %d findings, want 10: %v", len(all), all)
	}
	for i := range run.Faults {
		for j := range run.Faults[i].Trials {
			run.Faults[i].Trials[j].Lost = 0
		}
	}
	f, _ := newIndex(run).lossFinding()
	if !strings.HasPrefix(f.Value, "0 of ") {
		t.Errorf("nobody has lost updates, but the finding is %q", f.Value)
	}
}

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()
	run := generated()
	const name = `<script>alert("x")</script>`
	old := run.Contestants[0].Name
	run.Contestants[0].Name, run.Missing[0].Reason = name, name
	for i := range run.Uncontended {
		if run.Uncontended[i].Contestant == old {
			run.Uncontended[i].Contestant = name
		}
	}
	if page := pageOf(t, run); !strings.Contains(page, html.EscapeString(name)) {
		t.Error("the page does not have the name")
	}
}

func TestRunsWithoutAll(t *testing.T) {
	t.Parallel()
	full := generated()
	zero := results.Run{
		Contestants: full.Contestants[:1], Uncontended: []results.Uncontended{{Contestant: full.Contestants[0].Name}},
		Contended: []results.Contended{
			{Contestant: full.Contestants[0].Name, Rejoin: results.AfterNext, Rounds: []results.ContendedRound{{}}},
		},
		ManyKeys: []results.ManyKeys{{Contestant: full.Contestants[0].Name}},
		Orders: []results.Orders{{
			Contestant: full.Contestants[0].Name, Articles: "one",
			Rounds: []results.OrdersRound{{}},
		}},
		Faults: []results.Fault{{
			Contestant: full.Contestants[0].Name, Fault: results.HolderKilled,
			Trials: []results.FaultTrial{{}},
		}},
	}
	undescribed := full
	undescribed.Contestants = nil
	for name, run := range map[string]results.Run{
		"nothing at all":         {},
		"nobody took part":       {Contestants: full.Contestants},
		"only uncontended":       {Contestants: full.Contestants, Uncontended: full.Uncontended},
		"only many keys":         {Contestants: full.Contestants, ManyKeys: full.ManyKeys},
		"only faults":            {Contestants: full.Contestants, Faults: full.Faults},
		"one setting, contended": {Contestants: full.Contestants, Contended: full.Contended[:1]},
		"all is 0":               zero,
		"rounds without figures": {
			Contended: []results.Contended{{Contestant: "x"}},
			Orders:    []results.Orders{{Contestant: "x"}},
		},
		"nobody knows who it was": undescribed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := pageOf(t, run)
			if run.Uncontended == nil && !strings.Contains(page, "Not measured in this run.") {
				t.Error("the page does not say that something was not measured")
			}
			if err := Markdown(&bytes.Buffer{}, run); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Markdown(&out, generated()); err != nil {
		t.Fatal(err)
	}
	table := out.String()
	rows := regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(table, -1)
	for _, row := range rows {
		if got := strings.Count(row, "|"); !slices.Contains([]int{3, 6, 8, 9, 10}, got) {
			t.Errorf("%d bars in %q, want those of a table", got, row)
		}
	}
	for _, text := range []string{
		"txlock Lock, pgx", "txlock Do, MariaDB", "pg_advisory_lock", "GET_LOCK, MySQL", "rueidislock",
		"etcd concurrency",
		"go-zookeeper", "seed 4711", "PostgreSQL 18.1", "| txlock Combine, pgx | 40\u202f000 | 40.0 × |",
		"| txlock Lock, pgx, no queue | > 1.28 s | > 2.00 s |", "| bare row: Lock, pgx |",
		"| 1.07 (1.07–1.07) |",
	} {
		if !strings.Contains(table, text) {
			t.Errorf("the table has no %q", text)
		}
	}
	short, _, _ := strings.Cut(table, "\nAs a multiple")
	for _, text := range []string{"redislock |", "txlock Rows", "NaN"} {
		if strings.Contains(short, "| "+text) {
			t.Errorf("the table has %q", text)
		}
	}
	t.Logf("\n%s", table)
}

func TestPoolsIsAPicture(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Pools(&out, generated()); err != nil {
		t.Fatal(err)
	}
	picture := out.String()
	balanced(t, picture)
	for _, text := range []string{"<svg xmlns=", "500 callers", "10 of 10", "1.28 s", "200 µs", "p99"} {
		if !strings.Contains(picture, text) {
			t.Errorf("the picture has no %q", text)
		}
	}
	if err := Pools(&out, results.Run{}); err == nil {
		t.Error("without a crowd there is nothing to draw")
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "–", 12 * time.Nanosecond: "12.0 ns", 182400 * time.Nanosecond: "182 µs", 1234 * time.Microsecond: "1.23 ms",
		90 * time.Second:         "90.0 s",
		999960 * time.Nanosecond: "1.00 ms",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%d) = %q, want %q", d, got, want)
		}
	}
}
