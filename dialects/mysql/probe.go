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
)

// heldSlots are slots that others hold, it is not known who, found by SKIP LOCKED: it reads the
// free ones, each of which is locked for the microsecond in which the condition looks at it and
// says no (at READ COMMITTED InnoDB unlocks a row that does not match). Nobody who waits is held
// up; a TryLock that meets that moment misses.
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
	// it can be long, and the session is the caller's
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

// lookSQL notes what it passes in one variable, for the optimizer takes a variable that is only
// read for a constant: all the gaps between slots, and the slot behind the last; of a few slots,
// those that are free. MariaDB turns a list of 1000 numbers into a table and joins it, and the
// variable would then note the numbers in that list instead of the rows that are free: hence the
// threshold of 0, which turns that off.
func lookSQL(table string, only []int) string {
	settings := onMariaDB(someWait, "in_predicate_conversion_threshold=0")
	if only == nil {
		return settings + "SELECT slot FROM " + table +
			" FORCE INDEX (PRIMARY) WHERE (@txlock_seen := CONCAT(SUBSTRING_INDEX(@txlock_seen, '|', 1), " +
			"IF(SUBSTRING_INDEX(@txlock_seen, '|', -1) = slot, '', CONCAT(' ', SUBSTRING_INDEX(@txlock_seen, '|', " +
			"-1), '-', slot - 1)), " +
			"'|', slot + 1)) IS NULL FOR UPDATE SKIP LOCKED"
	}
	numbers := make([]string, len(only))
	for i, slot := range only {
		numbers[i] = strconv.Itoa(slot)
	}
	return settings + "SELECT slot FROM " + table + " FORCE INDEX (PRIMARY) WHERE slot IN (" +
		strings.Join(numbers, ",") +
		") AND (@txlock_seen := CONCAT(@txlock_seen, ' ', slot)) IS NULL FOR UPDATE SKIP LOCKED"
}

// gaps reads " 5-5 70-71|65535": slots 5, 70 and 71, and from 65535 on.
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
	// probeFor is how long a probe waits at most. It is ended when the views have been read, which
	// is after some 120 ms.
	probeFor = time.Second
	// probing is how long all of it may take; and half of the time that ctx leaves, so that there
	// is an answer.
	probing = 5 * time.Second
)

// findHolders waits for held slots, a few at a time, so that the views name their holders. A probe
// stands at the end of the queue, and when its turn comes it has the row for no longer than it
// takes to give it back. When somebody else reads the views just then, they show an old picture,
// without the probes: then it tries again for as long as there is time. Slots whose holders nobody
// has named are held by somebody unknown if they were held at each look: at one alone, that may
// have been the look of another Inspect.
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
			if probes < len(some) { // the server, or the pool, has no more connections for us
				atOnce = probes
			}
			old = old || !current
		}
		if !old { // else a picture was waited for, so that this does not spin
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

// findSome waits for slots, and returns for how many of them there was a connection, and whether
// the picture is so new that those who waited are in it. It is to be called in one's turn, so that
// others' probes do not take the connections too.
func (d *Driver) findSome(ctx context.Context, conn *sql.Conn, s *scene, slots []int) (
	probed int, current bool, err error,
) {
	var running sync.WaitGroup
	var waited atomic.Int32
	spared := make(chan struct{})           // closed when nothing more is killed
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

// probe waits for a slot on a connection of its own, and tells whether it did so until it was
// killed. A pool that has none to give leaves the holder unknown. The connection goes back to the
// pool, where the next may be the application's statement, only when no KILL can meet it any more.
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
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), probeFor+cleanUpTimeout)
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
