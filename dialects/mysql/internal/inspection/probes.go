package inspection

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// heldRows finds rows held by unknown sessions, using SKIP LOCKED. It reads the free rows. Each is
// locked for the microsecond in which the condition looks at it and says no: at READ COMMITTED
// InnoDB unlocks a row that does not match. That delays no waiter, but a TryLock at that moment
// misses.
func (p *picture) heldRows(ctx context.Context, only []int) ([]int, error) {
	look := func(mode string) error {
		_, err := p.ask(ctx, "SET @txlock_seen = '|0'", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
			p.lookSQL(only, mode))
		return err
	}
	err := look(sqltext.Owning)
	if server.Number(err) == server.OnlyStatements { // which goes for FOR UPDATE too
		err = look(sqltext.Sharing)
	}
	if err != nil {
		return nil, err
	}
	seen, err := p.ask(ctx, "SELECT @txlock_seen")
	if err != nil {
		return nil, err
	}
	// The variable can be long, and the session is the caller's.
	if _, err := p.ask(ctx, "ROLLBACK", "SET @txlock_seen = NULL"); err != nil {
		return nil, err
	}
	missed, passed := only, strings.Fields(strings.TrimPrefix(seen[0][0], "|0"))
	if only == nil {
		missed, passed = gaps(seen[0][0], p.slots), nil
	}
	known := map[string]bool{}
	for _, row := range passed {
		known[row] = true
	}
	for _, lock := range p.locks {
		known[lock.value] = known[lock.value] || lock.table == p.own && !lock.waiting && lock.party != nil
	}
	return slices.DeleteFunc(slices.Clone(missed), func(row int) bool { return known[strconv.Itoa(row)] }), nil
}

// lookSQL notes in a variable what it passes: the gaps between all free slots, and the slot behind
// the last; or, of the rows in only, the free ones. It is one variable, because the optimizer takes
// one that is only read for a constant. MariaDB turns a list of 1000 numbers into a table and joins
// it. The variable would then note the numbers of that list instead of the free rows. A threshold
// of 0 turns that off.
func (p *picture) lookSQL(only []int, mode string) string {
	condition := "(@txlock_seen := CONCAT(SUBSTRING_INDEX(@txlock_seen, '|', 1), " +
		"IF(SUBSTRING_INDEX(@txlock_seen, '|', -1) = slot, '', " +
		"CONCAT(' ', SUBSTRING_INDEX(@txlock_seen, '|', -1), '-', slot - 1)), '|', slot + 1))"
	if only != nil {
		list := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(only), "[]")), ",")
		condition = p.column + " IN (" + list + ") AND (@txlock_seen := CONCAT(@txlock_seen, ' ', " + p.column + "))"
	}
	settings := sqltext.OnMariaDB(sqltext.SomeWait, "in_predicate_conversion_threshold=0")
	return settings + "SELECT " + p.column + " FROM " + p.table + " FORCE INDEX (PRIMARY) WHERE " + condition +
		" IS NULL " + mode + sqltext.SkipLocked
}

// gaps reads, for example, " 5-5 70-71|65535": slots 5, 70 and 71, and from 65535 on.
func gaps(seen string, slots int) (missed []int) {
	list, next, _ := strings.Cut(seen, "|")
	for _, gap := range append(strings.Fields(list), next+"-"+strconv.Itoa(slots-1)) {
		var first, last int
		if _, err := fmt.Sscanf(gap, "%d-%d", &first, &last); err == nil {
			for slot := first; slot <= last; slot++ {
				missed = append(missed, slot)
			}
		}
	}
	return missed
}

// probeMark is the comment of awaitHolder's statements.
const probeMark = sqltext.CommentMark + "probe */ "

const (
	// waitsAtOnce is how many connections wait for held rows at once.
	waitsAtOnce = 4
	// waitFor bounds each wait. It is ended when the views have been read, after some 120 ms.
	waitFor = time.Second
	// searchFor bounds all of it; half of the time that ctx leaves does as well, so that there is
	// an answer.
	searchFor = 5 * time.Second
)

// findHolders waits for held rows, a few at a time, so that the views name their holders. Each
// waiter stands at the end of the queue, and gives the row back as soon as it has it. When somebody
// else reads the views just then, they show an old picture without the waiters: it tries again as
// long as there is time. A row whose holder is never named has an unknown holder if it was held at
// each look. At a single look, another Inspect may have had it.
func (m *mariadb) findHolders(ctx context.Context, p *picture) error {
	const looks = 5
	end := time.Now().Add(searchFor)
	if deadline, ok := ctx.Deadline(); ok {
		end = time.Now().Add(min(searchFor, time.Until(deadline)/2))
	}
	search, stop := context.WithDeadline(ctx, end)
	defer stop()
	only, atOnce := p.only, waitsAtOnce
	for look := 1; ; {
		held, err := p.heldRows(ctx, only)
		if err != nil || len(held) == 0 {
			return err
		}
		if only = held; look == looks {
			break
		}
		old := false
		for len(held) > 0 && atOnce > 0 && search.Err() == nil && m.enter(search) == nil {
			some := held[:min(atOnce, len(held))]
			held = held[len(some):]
			asked, current, err := m.findSome(ctx, p, some)
			m.leave()
			if err != nil {
				return err
			}
			if asked < len(some) { // the server, or the pool, has no more connections to give
				atOnce = asked
			}
			old = old || !current
		}
		if !old { // an old picture was waited for, so this does not spin
			look++
		}
	}
	for _, row := range only {
		p.locks = append(p.locks, rowLock{
			party: &dialects.Party{}, table: p.own, index: primary, value: strconv.Itoa(row),
		})
	}
	return nil
}

// findSome waits for rows. Asked is for how many of them there was a connection. Current is whether
// the picture is so new that it shows those waiters. It is called between enter and leave, so that
// the waiters of others do not take connections too.
func (m *mariadb) findSome(ctx context.Context, p *picture, rows []int) (asked int, current bool, err error) {
	var running sync.WaitGroup
	var waited atomic.Int32
	spared := make(chan struct{})            // closed when no more KILL is sent
	sessions := make(chan string, len(rows)) // that wait; "" for a row without one
	for _, row := range rows {
		running.Go(func() {
			if m.awaitHolder(ctx, p, row, sessions, spared) {
				waited.Add(1)
			}
		})
	}
	var waiting []string
	for range rows {
		if session := <-sessions; session != "" {
			waiting = append(waiting, session)
		}
	}
	found := newPicture(p.conn)
	found.folds = p.folds
	if len(waiting) > 0 {
		m.last = time.Now() // some time for them to be in the queue
		_, err = m.readLocks(ctx, found)
	}
	for _, session := range waiting {
		_, _ = p.ask(ctx, "KILL QUERY "+session) // else it ends by itself
	}
	close(spared)
	running.Wait()
	pictured := int32(0)
	for _, lock := range found.locks {
		own := slices.Contains(waiting, lock.session)
		if own && lock.waiting {
			pictured++
		}
		asked := slices.ContainsFunc(rows, func(row int) bool { return strconv.Itoa(row) == lock.value })
		if asked && lock.table == p.own && !own {
			p.locks = append(p.locks, lock)
		}
	}
	return len(waiting), pictured >= waited.Load(), err
}

// awaitHolder waits for a row on a connection of its own, and tells whether a KILL ended the wait.
// A pool that has no connection to give leaves the holder unknown. The connection goes back to the
// pool only when no KILL can hit the application's next statement.
func (m *mariadb) awaitHolder(ctx context.Context, p *picture, row int, started chan<- string,
	spared <-chan struct{},
) (killed bool) {
	brief, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	conn, err := m.control.Conn(brief)
	if err != nil {
		started <- ""
		return false
	}
	defer conn.Close()
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), waitFor+interrupt.CleanUp)
	defer stop()
	// As on each connection of a pool of the caller's: what it was left with is committed.
	_, err = conn.ExecContext(clean, "COMMIT")
	var session [][]string
	if err == nil {
		session, err = server.Grid(clean, conn, "SELECT CONNECTION_ID()")
	}
	if err != nil {
		started <- ""
		return false
	}
	started <- session[0][0]
	limits := sqltext.OnMariaDB(sqltext.SomeWait, fmt.Sprintf("max_statement_time=%.3f", waitFor.Seconds()))
	_, waited := server.Grid(clean, conn, fmt.Sprintf("%sSELECT %s%s FROM %s WHERE %[3]s = %[5]d FOR UPDATE", limits,
		probeMark, p.column, p.table, row))
	_, err = conn.ExecContext(clean, "ROLLBACK") // at once: it may have the row
	<-spared
	if err != nil {
		server.Destroy(conn)
	}
	return server.Number(waited) == server.QueryInterrupted
}
