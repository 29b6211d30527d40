package mysql

import (
	"context"
	"database/sql"
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

// heldSlots finds slots held by unknown sessions, using SKIP LOCKED. It reads the free slots. Each
// is locked for the microsecond in which the condition looks at it and says no: at READ COMMITTED
// InnoDB unlocks a row that does not match. That delays no waiter, but a TryLock at that moment
// misses.
func (p *picture) heldSlots(ctx context.Context, conn *sql.Conn, slots int, only []int) ([]int, error) {
	table, err := sqltext.QuoteTable(p.table)
	if err != nil {
		return nil, err
	}
	look := func(mode string) error {
		for _, text := range []string{
			"SET @txlock_seen = '|0'", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
			lookSQL(table, p.column, only, mode),
		} {
			if _, err := server.Grid(ctx, conn, text); err != nil {
				return err
			}
		}
		return nil
	}
	err = look(sqltext.Owning)
	if server.Number(err) == server.OnlyStatements { // which goes for FOR UPDATE too
		err = look(sqltext.Sharing)
	}
	if err != nil {
		return nil, err
	}
	seen, err := firstColumn(ctx, conn, "SELECT @txlock_seen")
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return nil, err
	}
	// The variable can be long, and the session is the caller's.
	if _, err := conn.ExecContext(ctx, "SET @txlock_seen = NULL"); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, lock := range p.locks {
		if lock.table == p.slots() && !lock.waiting && lock.party != nil {
			known[lock.value] = true
		}
	}
	missed := gaps(seen[0], slots)
	if only != nil {
		missed = absent(seen[0], only)
	}
	return slices.DeleteFunc(missed, func(slot int) bool { return known[strconv.Itoa(slot)] }), nil
}

// lookSQL notes in a variable what it passes: the gaps between all free slots, and the slot behind
// the last; or, of the slots in only, the free ones. It is one variable, because the optimizer
// takes one that is only read for a constant. MariaDB turns a list of 1000 numbers into a table and
// joins it. The variable would then note the numbers of that list instead of the free rows. A
// threshold of 0 turns that off.
func lookSQL(table, column string, only []int, mode string) string {
	settings := sqltext.OnMariaDB(sqltext.SomeWait, "in_predicate_conversion_threshold=0")
	if only == nil {
		return settings + "SELECT slot FROM " + table +
			" FORCE INDEX (PRIMARY) WHERE (@txlock_seen := CONCAT(SUBSTRING_INDEX(@txlock_seen, '|', 1), " +
			"IF(SUBSTRING_INDEX(@txlock_seen, '|', -1) = slot, '', " +
			"CONCAT(' ', SUBSTRING_INDEX(@txlock_seen, '|', -1), '-', slot - 1)), '|', slot + 1)) IS NULL " +
			mode + sqltext.SkipLocked
	}
	numbers := make([]string, len(only))
	for i, slot := range only {
		numbers[i] = strconv.Itoa(slot)
	}
	return settings + "SELECT " + column + " FROM " + table +
		" FORCE INDEX (PRIMARY) WHERE " + column + " IN (" + strings.Join(numbers, ",") +
		") AND (@txlock_seen := CONCAT(@txlock_seen, ' ', " + column + ")) IS NULL " + mode + sqltext.SkipLocked
}

// gaps reads, for example, " 5-5 70-71|65535": slots 5, 70 and 71, and from 65535 on.
func gaps(seen string, slots int) (missed []int) {
	list, next, _ := strings.Cut(seen, "|")
	for _, gap := range append(strings.Fields(list), next+"-"+strconv.Itoa(slots-1)) {
		from, to, _ := strings.Cut(gap, "-")
		first, failed := strconv.Atoi(from)
		last, err := strconv.Atoi(to)
		for slot := first; failed == nil && err == nil && slot <= last; slot++ {
			missed = append(missed, slot)
		}
	}
	return missed
}

func absent(seen string, only []int) (missed []int) {
	free := map[string]bool{}
	for _, slot := range strings.Fields(strings.TrimPrefix(seen, "|0")) {
		free[slot] = true
	}
	for _, slot := range only {
		if !free[strconv.Itoa(slot)] {
			missed = append(missed, slot)
		}
	}
	return missed
}

const (
	// probeMark is the comment of awaitHolder's statements.
	probeMark = sqltext.CommentMark + "probe */ "
	// waitsAtOnce is how many connections wait for held slots at once.
	waitsAtOnce = 4
	// waitFor bounds each wait. It is ended when the views have been read, after some 120 ms.
	waitFor = time.Second
	// searchFor bounds all of it; half of the time that ctx leaves does as well, so that there is
	// an answer.
	searchFor = 5 * time.Second
)

// findHolders waits for held slots, a few at a time, so that the views name their holders. Each
// waiter stands at the end of the queue, and gives the row back as soon as it has it. When somebody
// else reads the views just then, they show an old picture without the waiters: it tries again as
// long as there is time. A slot whose holder is never named has an unknown holder if it was held at
// each look. At a single look, another Inspect may have had it.
func (d *Driver) findHolders(ctx context.Context, conn *sql.Conn, p *picture, slots int, only []int) error {
	const looks = 5
	end := time.Now().Add(searchFor)
	if deadline, ok := ctx.Deadline(); ok {
		end = time.Now().Add(min(searchFor, time.Until(deadline)/2))
	}
	search, stop := context.WithDeadline(ctx, end)
	defer stop()
	atOnce := waitsAtOnce
	for look := 1; ; {
		held, err := p.heldSlots(ctx, conn, slots, only)
		if err != nil || len(held) == 0 {
			return err
		}
		if only = held; look == looks {
			break
		}
		old := false
		for len(held) > 0 && atOnce > 0 && search.Err() == nil && d.readings.enter(search) == nil {
			some := held[:min(atOnce, len(held))]
			held = held[len(some):]
			asked, current, err := d.findSome(ctx, conn, p, some)
			d.readings.leave()
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
	for _, slot := range only {
		p.locks = append(p.locks, rowLock{
			party: &dialects.Party{}, table: p.slots(), index: primary,
			value: strconv.Itoa(slot),
		})
	}
	return nil
}

// findSome waits for slots. Asked is for how many of them there was a connection. Current is
// whether the picture is so new that it shows those waiters. It is called between
// readings.enter and leave, so that the waiters of others do not take connections too.
func (d *Driver) findSome(ctx context.Context, conn *sql.Conn, p *picture, slots []int) (
	asked int, current bool, err error,
) {
	var running sync.WaitGroup
	var waited atomic.Int32
	spared := make(chan struct{})             // closed when no more KILL is sent
	sessions := make(chan string, len(slots)) // that wait; "" for a slot without one
	for _, slot := range slots {
		running.Go(func() {
			if d.awaitHolder(ctx, p, slot, sessions, spared) {
				waited.Add(1)
			}
		})
	}
	found := &picture{people: map[string]*dialects.Party{}, begins: map[string]string{}, folds: p.folds}
	var waiting []string
	for range slots {
		if session := <-sessions; session != "" {
			waiting = append(waiting, session)
		}
	}
	if len(waiting) > 0 {
		d.readings.last = time.Now() // they are in the next picture that is newer than this
		_, err = d.readLocks(ctx, conn, found)
	}
	for _, session := range waiting {
		_, _ = conn.ExecContext(ctx, "KILL QUERY "+session) // else it ends by itself
	}
	close(spared)
	running.Wait()
	pictured := int32(0)
	for _, lock := range found.locks {
		own := slices.Contains(waiting, lock.session)
		if own && lock.waiting {
			pictured++
		}
		asked := slices.ContainsFunc(slots, func(slot int) bool { return strconv.Itoa(slot) == lock.value })
		if asked && lock.table == p.slots() && !own {
			p.locks = append(p.locks, lock)
		}
	}
	d.readings.old = pictured < waited.Load()
	return len(waiting), !d.readings.old, err
}

// awaitHolder waits for a slot on a connection of its own, and tells whether a KILL ended the wait.
// A pool that has no connection to give leaves the holder unknown. The connection goes back to the
// pool only when no KILL can hit the application's next statement.
func (d *Driver) awaitHolder(ctx context.Context, p *picture, slot int, started chan<- string,
	spared <-chan struct{},
) (killed bool) {
	brief, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	conn, err := d.control.Conn(brief)
	if err != nil {
		started <- ""
		return false
	}
	defer conn.Close()
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), waitFor+interrupt.CleanUp)
	defer stop()
	session, err := firstColumn(clean, conn, "SELECT CONNECTION_ID()")
	if err != nil {
		started <- ""
		return false
	}
	started <- session[0]
	table, _ := sqltext.QuoteTable(p.table)
	limits := sqltext.OnMariaDB(sqltext.SomeWait, fmt.Sprintf("max_statement_time=%.3f", waitFor.Seconds()))
	_, waited := server.Grid(clean, conn, fmt.Sprintf("%sSELECT %s%s FROM %s WHERE %[3]s = %[5]d FOR UPDATE", limits,
		probeMark, p.column, table, slot))
	_, err = conn.ExecContext(clean, "ROLLBACK") // at once: it may have the row
	<-spared
	if err != nil {
		server.Destroy(conn)
	}
	return server.Number(waited) == server.QueryInterrupted
}
