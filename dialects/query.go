package dialects

// Query is a statement of a kind: text that Find has handed out, with arguments.
//
// Several statements are separated by a semicolon at the end of a line. On PostgreSQL, the last one
// has the rows, and each uses the first of the arguments. Elsewhere one has rows.
type Query struct {
	SQL   string
	Args  []any  // string, []byte, int64
	Table string // that it is about, for errors
	// Reads says that it is one SELECT, or several in a UNION, which writes nothing, and locks what
	// it can for a moment.
	Reads bool
}

// Kinds are the texts of the kinds of locks that are clients of the others, for one lock table.
type Kinds struct {
	// Ping has a line if the lock table has a slot: empty, or why the server takes no writes.
	Ping    string
	Once    OnceSQL
	Claims  ClaimSQL
	Permits PermitSQL
	Leaders LeadersSQL
}

// PermitSQL are the texts of semaphores. Each semaphore has a row for each of its permits, and a
// further one for its queue. The rows' numbers are their own.
type PermitSQL struct {
	Table string
	// Find finds the numbers of the rows of a hash, so many permits and then the queue. Make makes
	// those that are missing, with a name besides.
	Find, Make string
	// Look finds a row, by its number and hash: its lines are "is", and "free" if nobody has locked
	// it.
	Look string
}

// Request is for one free row of those, or for the row of the queue.
func (p PermitSQL) Request(hash, label string, rows []string) Request {
	values := make([]Value, len(rows))
	for i, row := range rows {
		values[i].Text = row
	}
	return Request{Table: p.Table, Column: "id", Values: values, Ours: true, AnyOne: hash, Label: label}
}

// LeadersSQL is for elections, which have three rows each of a table: see txlock.Election. Clients
// agree on the hash of a name.
type LeadersSQL struct {
	Table string // as Request has it
	Rows  string // by hash: the numbers of the seat and the office, or nothing
	Make  string // by hash, name for people: makes the rows, and returns what Rows does
	// Write writes the record, by term, identity, hash, if it has a smaller term. It returns
	// "resigned" if the former leader had, or nobody has led, and "lost" otherwise.
	Write  string
	Resign string // by hash, term: the identity is NULL then
	// Leader is by hash. It returns "free" if the office is, and "writes" or "reads", what
	// the server does, with term, microseconds since 1970, and identity in hexadecimal digits.
	Leader string
}
