package dialects

// Named is a semaphore or an election. Clients agree on the hash of its name. It has rows of its
// own in a table beside the lock table.
//
// A semaphore has one for each permit, and one that is its queue. Who holds a permit has locked its
// row on InnoDB, and on PostgreSQL an advisory lock that has the row's number: there it writes
// nothing. No server can wait for any of several rows. So the sessions that wait stand in a queue,
// whose first alone looks for a permit.
//
// An election has a seat, a record and an office: see Part.
type Named struct {
	Kind Kind
	Hash string // of 64 hexadecimal digits
	Name string // in ASCII, for people; empty: it is hidden
}

// Rows are those of an election.
type Rows struct {
	Hash    string   // of the name, as the table has it
	Table   string   // beside the lock table, as Request has it
	Numbers []string // by Part
}
