package dialects

import "context"

// Semaphores keeps the permits of semaphores: rows of a table beside the lock table, one for each
// permit. Who holds a permit has locked its row on InnoDB, and on PostgreSQL an advisory lock that
// has the row's number: there it writes nothing.
//
// No server can wait for any of several rows. So the sessions that wait stand in a queue of the
// server's, whose head alone looks for a permit: it waits for one of them for a moment, tries all,
// and so on. It leaves the queue when it has a permit, which it keeps.
type Semaphores interface {
	// Permits finds the rows of a semaphore's first n permits, and makes those that are missing,
	// with its name for people, if that is not empty. It may run on several clients at once, and
	// takes a connection from the pool for a moment. A table that is missing is ErrNotInstalled.
	Permits(ctx context.Context, table string, semaphore Named, n int) (Permits, error)
}

// Named is a semaphore or an election. Clients agree on the hash of its name.
type Named struct {
	Hash string // of 64 hexadecimal digits
	Name string // in ASCII, for people; empty: it is hidden
}

// Permits are the permits of a semaphore.
type Permits struct {
	Semaphore string // a hash of its name, as the table has it
	Table     string // of permits, as Request has it
	Rows      []int  // the numbers of the rows, by permit
	Queue     string // names the queue, where the server wants a name
}

// Request asks for one of the first n permits. Shown is what others see.
func (p Permits) Request(shown string, n int) Request {
	return Request{
		Table: p.Table, Column: "hash", Values: []Value{{Text: p.Semaphore}}, Ours: true, Keys: []string{shown},
		Permit: &Permit{Rows: p.Rows[:n], Queue: p.Queue, Held: -1},
	}
}

// Permit is what a Request has that asks for one permit: any of the rows of its one Value, the
// semaphore.
type Permit struct {
	Rows  []int
	Queue string
	Held  int // that the session may have already; else -1
}
