package dialects

import (
	"fmt"
	"slices"
)

// Named is a semaphore or an election. Clients agree on the hash of its name. It has rows of its
// own in a table beside the lock table.
//
// A semaphore has one for each permit. Who holds a permit has locked its row on InnoDB, and on
// PostgreSQL an advisory lock that has the row's number: there it writes nothing. No server can
// wait for any of several rows. So the sessions that wait stand in a queue of the server's, whose
// head alone looks for a permit: it waits for one of them for a moment, tries all, and so on. It
// leaves the queue when it has a permit, which it keeps.
//
// An election has a seat, a record and an office: see txlock.Election.
type Named struct {
	Kind Kind
	Hash string // of 64 hexadecimal digits
	Name string // in ASCII, for people; empty: it is hidden
}

// Rows are those of a semaphore.
type Rows struct {
	Hash    string   // of the name, as the table has it
	Table   string   // beside the lock table, as Request has it
	Numbers []string // by permit
	Queue   string   // names the queue of a semaphore, where the server wants a name
}

// Permit requests one of the first n permits. Shown is what others see.
func (r Rows) Permit(shown string, n int) Request {
	return Request{
		Table: r.Table, Column: "hash", Values: []Value{{Text: r.Hash}}, Ours: true, Keys: []string{shown},
		Permit: &Permit{Rows: r.Numbers[:n], Queue: r.Queue, Held: -1},
	}
}

// Permit is what a Request has that asks for one permit: any of the rows of its one Value, the
// semaphore.
type Permit struct {
	Rows  []string
	Queue string
	Held  int // that the session may have already; else -1
}

// Taken is the permit whose row was taken.
func (p *Permit) Taken(row string) (permit int, err error) {
	if permit = slices.Index(p.Rows, row); permit < 0 {
		err = fmt.Errorf("bug: row %q is no permit of %v", row, p.Rows)
	}
	return permit, err
}
