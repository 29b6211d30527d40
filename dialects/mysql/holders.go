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
)

// heldSlots finds slots held by unknown sessions, using SKIP LOCKED. It reads the free slots. Each
// is locked for the microsecond in which the condition looks at it and says no: at READ COMMITTED
// InnoDB unlocks a row that does not match. That delays no waiter, but a TryLock at that moment
// misses.
func (s *scene) heldSlots(ctx context.Context, conn *sql.Conn, slots int, only []int) ([]int, error) {
	table, err := quoteTable(s.table)
	if err != nil {
		return nil, err
	}
	for _, text := range []string{
		"SET @txlock_seen = '|0'", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", lookSQL(table, only),
	} {
		if _, err := grid(ctx, conn, text); err != nil {
			return nil, err
		}
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
	for _, lock := range s.locks {
		if lock.table == s.slots() && !lock.waiting && lock.party != nil {
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
func lookSQL(table string, only []int) string {
	settings := onMariaDB(someWait, "in_predicate_conversion_threshold=0")
	if only == nil {
		return settings + "SELECT slot FROM " + table +
			" FORCE INDEX (PRIMARY) WHERE (@txlock_seen := CONCAT(SUBSTRING_INDEX(@txlock_seen, '|', 1), " +
			"IF(SUBSTRING_INDEX(@txlock_seen, '|', -1) = slot, '', " +
			"CONCAT(' ', SUBSTRING_INDEX(@txlock_seen, '|', -1), '-', slot - 1)), '|', slot + 1)) IS NULL " +
			"FOR UPDATE SKIP LOCKED"
	}
	numbers := make([]string, len(only))
	for i, slot := range only {
		numbers[i] = strconv.Itoa(slot)
	}
	return settings + "SELECT slot FROM " + table +
		" FORCE INDEX (PRIMARY) WHERE slot IN (" + strings.Join(numbers, ",") +
		") AND (@txlock_seen := CONCAT(@txlock_seen, ' ', slot)) IS NULL FOR UPDATE SKIP LOCKED"
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
	// probesAtOnce is how many connections wait for held slots at once.
	probesAtOnce = 4
	// probeFor bounds the wait of a probe. It is ended when the views have been read, after some
	// 120 ms.
	probeFor = time.Second
	// probing bounds all of it; half of the time that ctx leaves does as well, so that there is an
	// answer.
	probing = 5 * time.Second
)

// findHolders waits for held slots, a few at a time, so that the views name their holders. A probe
// stands at the end of the queue. When its turn comes, it gives the row back at once. When somebody
// else reads the views just then, they show an old picture without the probes: it tries again as
// long as there is time. A slot whose holder is never named has an unknown holder if it was held at
// each look. At a single look, another Inspect may have had it.
func (d *Driver) findHolders(ctx context.Context, conn *sql.Conn, s *scene, slots int, only []int) error {
	const looks = 5
	end := time.Now().Add(probing)
	if deadline, ok := ctx.Deadline(); ok {
		end = time.Now().Add(min(probing, time.Until(deadline)/2))
	}
	search, stop := context.WithDeadline(ctx, end)
	defer stop()
	atOnce := probesAtOnce
	for look := 1; ; {
		held, err := s.heldSlots(ctx, conn, slots, only)
		if err != nil || len(held) == 0 {
			return err
		}
		if only = held; look == looks {
			break
		}
		old := false
		for len(held) > 0 && atOnce > 0 && search.Err() == nil && d.views.enter(search) == nil {
			some := held[:min(atOnce, len(held))]
			held = held[len(some):]
			probes, current, err := d.findSome(ctx, conn, s, some)
			d.views.leave()
			if err != nil {
				return err
			}
			if probes < len(some) { // the server, or the pool, has no more connections to give
				atOnce = probes
			}
			old = old || !current
		}
		if !old { // an old picture was waited for, so this does not spin
			look++
		}
	}
	for _, slot := range only {
		s.locks = append(s.locks, rowLock{
			party: &dialects.Party{}, table: s.slots(), index: primary,
			value: strconv.Itoa(slot),
		})
	}
	return nil
}

// findSome waits for slots. Probed is for how many of them there was a connection. Current is
// whether the picture is so new that it shows those probes. It is called between views.enter and
// leave, so that the probes of others do not take connections too.
func (d *Driver) findSome(ctx context.Context, conn *sql.Conn, s *scene, slots []int) (
	probed int, current bool, err error,
) {
	var running sync.WaitGroup
	var waited atomic.Int32
	spared := make(chan struct{})           // closed when no more KILL is sent
	probes := make(chan string, len(slots)) // the numbers of their connections, "" for one that has none
	for _, slot := range slots {
		running.Go(func() {
			if d.probe(ctx, s, slot, probes, spared) {
				waited.Add(1)
			}
		})
	}
	found := &scene{people: map[string]*dialects.Party{}, folds: s.folds}
	var waiting []string
	for range slots {
		if session := <-probes; session != "" {
			waiting = append(waiting, session)
		}
	}
	if len(waiting) > 0 {
		d.views.last = time.Now() // they are in the next picture that is newer than this
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
		if asked && lock.table == s.slots() && !own {
			s.locks = append(s.locks, lock)
		}
	}
	d.views.old = pictured < waited.Load()
	return len(waiting), !d.views.old, err
}

// probe waits for a slot on a connection of its own, and tells whether a KILL ended the wait. A
// pool that has no connection to give leaves the holder unknown. The connection goes back to the
// pool only when no KILL can hit the application's next statement.
func (d *Driver) probe(ctx context.Context, s *scene, slot int, started chan<- string, spared <-chan struct{}) (
	killed bool,
) {
	brief, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	conn, err := d.control.Conn(brief)
	if err != nil {
		started <- ""
		return false
	}
	defer conn.Close()
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), probeFor+interrupt.CleanUp)
	defer stop()
	session, err := firstColumn(clean, conn, "SELECT CONNECTION_ID()")
	if err != nil {
		started <- ""
		return false
	}
	started <- session[0]
	table, _ := quoteTable(s.table)
	limits := onMariaDB(someWait, fmt.Sprintf("max_statement_time=%.3f", probeFor.Seconds()))
	_, waited := grid(clean, conn, fmt.Sprintf("%sSELECT %sslot FROM %s WHERE slot = %d FOR UPDATE", limits, probeMark,
		table, slot))
	_, err = conn.ExecContext(clean, "ROLLBACK") // at once: it may have the row
	<-spared
	if err != nil {
		destroy(conn)
	}
	return number(waited) == queryInterrupted
}
