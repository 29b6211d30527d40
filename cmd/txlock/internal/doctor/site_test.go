package doctor_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// site is a healthy set-up: a database with a lock table, and an ordinary user who may lock there.
type site struct {
	*engine
	name     string // the name of the database and of the user
	dsn      string // for the user
	admin    *sql.DB
	table    string
	baseline []string
}

var sites atomic.Int64

// newSite creates a site. When the test ends, all of it is removed.
func newSite(t *testing.T, e *engine, setUp ...string) *site {
	t.Helper()
	s := &site{engine: e, name: fmt.Sprintf("doctor_%d_%d", os.Getpid(), sites.Add(1)), table: "txlock_slots"}
	if e.postgres {
		s.onPostgres(t)
	} else {
		s.onMySQL(t)
	}
	s.execute(t, setUp...)
	s.baseline = s.findings(t)
	return s
}

// address is the server's DSN for another database and user, with more parameters.
func (e *engine) address(t *testing.T, user, database string, parameters ...string) string {
	t.Helper()
	u := must.Get(url.Parse(e.DSN))(t)
	u.Path = "/" + database
	if user != "" {
		u.User = url.User(user)
	}
	query := u.Query()
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// locker is a Locker on a pool of its own, which ends with the test.
func locker[Tx any, Driver dialects.Driver[Tx]](t *testing.T, open func(context.Context, string) (Driver, error),
	dsn string, options ...txlock.Option,
) *txlock.Locker[Tx] {
	t.Helper()
	driver := must.Get(open(background, dsn))(t)
	locks := txlock.New[Tx](driver, options...)
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	return locks
}

// execute runs statements as the administrator, in the site's database. %s is the name of the site.
func (s *site) execute(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		database.Exec(t, s.admin, strings.ReplaceAll(statement, "%s", s.name))
	}
}

// examine returns the doctor's findings for the site's user. Every fix must be well formed.
func (s *site) examine(t *testing.T) []doctor.Finding {
	t.Helper()
	findings := must.Get(s.look(background, s.dsn, s.table))(t)
	for _, finding := range findings {
		wellFormed(t, finding.Fix)
		require.NotContains(t, finding.Found, "Install", "which is not the command's name for it")
	}
	return findings
}

var ofSQL = regexp.MustCompile(`^(-- .+|[A-Z].*;( -- .+)?)$`)

func wellFormed(t *testing.T, fix doctor.Fix) {
	t.Helper()
	switch fix.Kind {
	case "":
		require.Empty(t, fix.Text)
	case doctor.SQL:
		for line := range strings.SplitSeq(fix.Text, "\n") {
			require.Regexp(t, ofSQL, line)
		}
		require.NotRegexp(t, `DROP (TABLE|VIEW)`, fix.Text, "somebody must decide that")
		require.NotContains(t, fix.Text, "ALTER SYSTEM", "which no transaction takes")
	case doctor.Shell:
		require.Regexp(t, "^txlock install", fix.Text)
	case doctor.Config:
		require.Regexp(t, `^# in .+\n`, fix.Text)
	case doctor.Advice:
		require.NotEmpty(t, fix.Text)
	default:
		require.Fail(t, "no kind of fix", "%v", fix)
	}
}

// findings returns what is not ok as sorted "check: severity" lines.
func (s *site) findings(t *testing.T) []string { return ailing(s.examine(t)) }

func ailing(findings []doctor.Finding) []string {
	var lines []string
	for _, finding := range findings {
		if finding.Severity != doctor.OK {
			lines = append(lines, line(finding))
		}
	}
	slices.Sort(lines)
	return lines
}

func line(finding doctor.Finding) string { return finding.Check + ": " + string(finding.Severity) }

// find returns the only finding of a check.
func find(t *testing.T, findings []doctor.Finding, check string) doctor.Finding {
	t.Helper()
	for _, finding := range findings {
		if finding.Check == check {
			return finding
		}
	}
	require.Fail(t, "no finding "+check, "%v", findings)
	return doctor.Finding{}
}

// fault is one change to a healthy set-up, and what must come of it.
type fault struct {
	name string
	only []servers.Kind // where it is possible; empty means everywhere
	// breaks cause the fault. heals undo what the fixes leave, except for server variables. Both
	// are statements of the administrator.
	breaks, heals []string
	// want are the findings that the fault causes, as "check: severity". They replace those of the
	// same checks.
	want []string
	// found is part of the text of the first of them.
	found string
	// left are the findings that still differ once all fixes were run.
	left []string
	// fix follows a fix that is not a statement. It returns the text that it understood.
	fix func(t *testing.T, s *site, finding doctor.Finding) string
}

// setting is a fault of one statement, by which it is called.
func setting(breaks, found string, want ...string) fault {
	return fault{name: breaks, breaks: []string{breaks}, found: found, want: want}
}

// on is the fault where it is possible.
func (f fault) on(kinds ...servers.Kind) fault {
	f.only = kinds
	return f
}

// fixedBy is the fault with a fix that is not a statement.
func (f fault) fixedBy(fix func(t *testing.T, s *site, finding doctor.Finding) string) fault {
	f.fix = fix
	return f
}

var globalVariable = regexp.MustCompile(`^SET GLOBAL (\w+)`)

// replaced returns lines, with by in place of those of the same checks.
func replaced(lines, by []string) []string {
	check := func(line string) string { return line[:strings.Index(line, ":")] }
	list := slices.Clone(by)
	for _, line := range lines {
		if !slices.ContainsFunc(by, func(other string) bool { return check(other) == check(line) }) {
			list = append(list, line)
		}
	}
	list = slices.DeleteFunc(list, func(line string) bool { return strings.HasSuffix(line, ": "+string(doctor.OK)) })
	slices.Sort(list)
	return list
}

// run breaks the site, requires exactly the wanted findings, runs their fixes, and requires that
// they disappear.
func (f fault) run(t *testing.T, s *site) {
	t.Helper()
	defer s.execute(t, f.heals...)
	for _, statement := range f.breaks {
		if changed := globalVariable.FindStringSubmatch(statement); changed != nil {
			defer s.reset(t, changed[1])
		}
	}
	s.execute(t, f.breaks...)
	s.eventually(t, 0, s.sessions()) // sessions of the previous examination end a little after it
	findings := s.examine(t)
	require.Equal(t, replaced(s.baseline, f.want), ailing(findings))
	for i, want := range f.want {
		if strings.HasSuffix(want, ": "+string(doctor.OK)) {
			continue
		}
		check, _, _ := strings.Cut(want, ":")
		finding := find(t, findings, check)
		require.NotEmpty(t, finding.Found)
		if i == 0 {
			require.Contains(t, finding.Found, strings.ReplaceAll(f.found, "%s", s.name))
			require.NotEmpty(t, finding.Why)
			require.NotEmpty(t, finding.Fix)
			require.NotEmpty(t, finding.Fix.Kind)
		}
		if finding.Fix.Text == "" || finding.Check == "row-locking" { // the other findings say what to do
			continue
		}
		if f.fix != nil {
			require.Equal(t, f.fix(t, s, finding), finding.Fix.Text)
			continue
		}
		require.Equal(t, doctor.SQL, finding.Fix.Kind, finding.Fix.Text)
		s.execute(t, finding.Fix.Text)
	}
	require.Equal(t, replaced(s.baseline, f.left), s.findings(t), "after the fix")
}

// everyFault runs the faults that apply to a kind of server, one after another on one site. Each
// leaves the site as it was.
func everyFault(t *testing.T, e *engine, faults []fault) {
	s := newSite(t, e)
	for _, f := range faults {
		if len(f.only) > 0 && !slices.Contains(f.only, e.Kind) {
			continue
		}
		if !t.Run(f.name, func(t *testing.T) { f.run(t, s) }) {
			s = newSite(t, e)
		}
	}
}

// killSessions ends all sessions of the site's user. It is for MySQL and MariaDB.
func (s *site) killSessions(t *testing.T) {
	t.Helper()
	query := "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '" + s.name + "'"
	for _, id := range database.Column[int](t, s.admin, query) {
		_, _ = s.admin.Exec(fmt.Sprintf("KILL %d", id)) // or it had already ended
	}
}

// lockTable locks the whole lock table until the test ends, so that an examination waits in the
// middle.
func (s *site) lockTable(t *testing.T) {
	t.Helper()
	holder := must.Get(s.admin.Conn(background))(t)
	t.Cleanup(func() { require.NoError(t, holder.Close()) })
	lock, unlock := "LOCK TABLES txlock_slots WRITE", "UNLOCK TABLES"
	if s.postgres {
		lock, unlock = "BEGIN; LOCK TABLE txlock_slots IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
	}
	database.Exec(t, holder, lock)
	t.Cleanup(func() { database.Exec(t, holder, unlock) })
}

// waiting counts the sessions of the site's user that wait for a table lock.
func (s *site) waiting() string {
	if s.postgres {
		return "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = '" + s.name + "'"
	}
	return "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table%' AND USER = '" +
		s.name + "'"
}

// sessions counts the sessions of the site's user.
func (s *site) sessions() string {
	if s.postgres {
		return "SELECT count(*) FROM pg_stat_activity WHERE usename = '" + s.name + "'"
	}
	return "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '" + s.name + "'"
}

// eventually waits until the query returns the wanted number.
func (s *site) eventually(t *testing.T, wanted int, query string) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("%d from %s", wanted, query), func() bool {
		var n int
		require.NoError(t, s.admin.QueryRow(query).Scan(&n))
		return n == wanted
	})
}

// installCommand runs what `txlock install` runs, with the grants that the fix asks for.
func installCommand(t *testing.T, s *site, _ doctor.Finding) string {
	t.Helper()
	s.install(t)
	return "txlock install  # as a user who may INSERT there, such as the table's owner"
}

// installed runs installCommand where the table is missing. TestMayNotCreate tests which grants
// that needs.
func installed(t *testing.T, s *site, finding doctor.Finding) string {
	t.Helper()
	s.install(t)
	return finding.Fix.Text
}

// renew drops a lock table that Install cannot complete, and installs it again.
func renew(t *testing.T, s *site, _ doctor.Finding) string {
	t.Helper()
	drop := "DROP TABLE `" + s.name + "`.`txlock_slots`;"
	if s.postgres {
		drop = `DROP TABLE "public"."txlock_slots";`
	}
	s.execute(t, drop)
	s.install(t)
	return "-- stop all clients first\n" + drop + "\n-- then, on a shell: txlock install"
}
