package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// deadlockPatience bounds the look at what a deadlock was. The victim's locks are free by then.
const deadlockPatience = 200 * time.Millisecond

// explainDeadlock adds to the error of a deadlock who else was in it, where the user may see that:
// SHOW ENGINE INNODB STATUS takes the privilege PROCESS. That stops other transactions for a
// moment, so one call looks at a time, and after a refusal none does. The section is about a
// deadlock of this statement if it shows its tag, which no other has. The connection's number would
// not tell: an error 1213 may have another cause, as on Galera, and the section be an older one.
func (d *Driver) explainDeadlock(ctx context.Context, tag string, failed error) error {
	if server.Number(failed) != server.LockDeadlock || !d.looking.CompareAndSwap(false, true) {
		return failed
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadlockPatience)
	defer cancel()
	status, err := d.pool.Ask(brief, "SHOW ENGINE INNODB STATUS")
	d.looking.Store(server.Number(err) == server.NoGlobalPrivilege)
	if err != nil || len(status) != 1 || len(status[0]) != 3 { // Type, Name, Status
		return failed
	}
	told, shown := lastDeadlock(status[0][2], tag)
	if told == "" {
		return failed
	}
	return dialects.DeadlockError{Err: failed, Told: told, Shown: shown}
}

// lastDeadlock reads, of InnoDB's monitor, who was in the latest deadlock besides the statement
// that carries tag. Of others it tells what they show of themselves alone: no SQL of theirs.
func lastDeadlock(status, tag string) (told string, brackets []dialects.Shown) {
	_, section, _ := strings.Cut(status, "\nLATEST DETECTED DEADLOCK\n")
	section, _, _ = strings.Cut(section, "\nTRANSACTIONS\n")
	if !strings.Contains(section, tag) {
		return "", nil
	}
	var others []string
	// A transaction's line with the thread id is followed by its statement.
	for _, party := range strings.Split(section, " thread id ")[1:] {
		if strings.Contains(party, tag) {
			continue
		}
		number, statement, _ := strings.Cut(party, ",")
		other := "connection " + number
		shown, _, _ := strings.Cut(sqltext.LabelIn(statement), "\n")
		if _, process, asked := label.Read(shown); asked != nil {
			_, bracket, _ := strings.Cut(shown, " ")
			other += fmt.Sprintf(" of process %d, which waited for %s", process, bracket)
			brackets = append(brackets, asked...)
		}
		others = append(others, other)
	}
	return "with " + strings.Join(others, ", and "), brackets
}
