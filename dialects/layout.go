package dialects

import (
	"strconv"
	"strings"
)

// Layout is what Install makes: the lock table, and beside it the tables that tokens are drawn
// from, and those of leaders, of markers, of permits and of claims. Who asks for it is about to
// look at the server anew.
type Layout struct {
	Parts  []Part // the lock table first
	Find   string // looks the lock table up: see locktable.Find
	Census string // reads all of it: see locktable.Slots
	// Kinds are the texts for a lock table of that full name, behind Find.
	Kinds func(name string) (Kinds, error)
	// Writers has a line where all nodes of the server's cluster take writes, which says why;
	// empty: that is found out before the first lock.
	Writers string
	// Seed makes the slots that are missing, unless there are some of another number.
	Seed func(slots int) string
	// Together is a Query's text that runs statements, while no other client does.
	Together func(statements ...string) string
}

// Part is what Install makes where it is missing.
type Part struct {
	Table   string
	Missing string // a condition of SQL; it is over when SQL has run
	SQL     string // statements that make it, and do no harm where it is there
}

// Missing is a query whose one line is a number with a bit for each part that is missing.
func (l Layout) Missing() string {
	bits := make([]string, len(l.Parts))
	for i, part := range l.Parts {
		bits[i] = "CASE WHEN " + part.Missing + " THEN " + strconv.Itoa(1<<i) + " ELSE 0 END"
	}
	return "SELECT " + strings.Join(bits, " + ")
}

// Text is all of it as SQL. Semicolons separate the statements.
func (l Layout) Text(slots int) (text string) {
	for _, part := range l.Parts {
		text += part.SQL + ";\n\n"
	}
	return text + l.Seed(slots) + ";\n"
}

// Query is a statement of a kind: text, with arguments.
//
// Several statements are separated by a semicolon at the end of a line. On PostgreSQL, the last one
// has the rows, and each uses the first of the arguments. Elsewhere one has rows.
type Query struct {
	SQL   string
	Args  []any  // string, []byte, int64
	Table string // that it is about, for errors
	// Reads tells MySQL that it is one SELECT, or several in a UNION, which writes nothing, and
	// locks what it can for a moment.
	Reads bool
}

// With is the query with arguments.
func (q Query) With(args ...any) Query {
	q.Args = args
	return q
}

// Kinds are the queries of the kinds of locks that are clients of the others, for one lock table.
type Kinds struct {
	// Ping has a line if the lock table has a slot: empty, or why the server takes no writes.
	Ping Query
	// Certified says that a cluster certifies locks of the lock table's rows: none can be shared.
	Certified bool

	Once    OnceSQL
	Claims  ClaimSQL
	Permits PermitSQL
	Leaders LeadersSQL
}

// OnceSQL are the texts of work that is done once. Its marker has the time at which it was done.
// Times, periods and ages are microseconds; a period of 0 is for ever.
type OnceSQL struct {
	Table  string
	Look   Query // marker: a line of the present, and behind a blank of the marker's time, if it is there
	Mark   Query // marker, time, period: an error if the work was done in the window of the time, or later
	First  Query // marker, number, period: a line if it was not done, whatever the snapshot
	Forget Query // marker
	// Answer is Look, and its line has the marker's answer in hexadecimal digits behind a further
	// blank, if there is one. MarkWith is Mark with a further argument, the answer.
	Answer, MarkWith Query
	// Sweep deletes what is older than an age, and not what others use: time, age, most. It
	// begins at a time, and has a line of how many went, and behind a blank of where to go on.
	Sweep Query
}

// ClaimSQL are the texts of claims. All times are by the server's clock, in microseconds. A line of
// a claim has, between blanks: a number, the token, the secret, since, until, what is left, and in
// hexadecimal digits the claim, its holder, and its name.
type ClaimSQL struct {
	Table string
	Read  Query // claim: its line, if it is held
	List  Query // the lines of claims that are held, 10 000 at most
	// Keep has the end of a claim, by claim, holder, token, secret, behind the lock of the row, if
	// all are the row's, and the end is to come. Secret 0 is any. Whatever snapshot the transaction
	// has, it reads the row. It makes the lock one of the cluster where there is one.
	Keep Query
	Move Query // as Keep, and how long: moves the end, with 0 into the past, and has the new one
	// Take has the line of a claim, by claim, holder, secret, name, how long. Its number is
	// positive if the claim was free and is now the holder's, or was his already, and its end alone
	// is moved. What others have locked is not taken. The token of a new row begins at its time.
	Take  Query
	Sweep Query // as that of OnceSQL
}

// PermitSQL are the texts of semaphores. Each semaphore has a row for each of its permits, and a
// further one for its queue. The rows' numbers are their own.
type PermitSQL struct {
	Table string
	// Look finds the numbers of the rows of a hash, of so many permits and then of the queue, and
	// behind them "free" if nobody has locked the queue: words between blanks, in lines.
	Look Query
	Make Query // hash, how many, name: makes the rows that are missing
}

// LeadersSQL is for elections, which have three rows each of a table: see docs/leaders.md. Clients
// agree on the hash of a name.
type LeadersSQL struct {
	Table string // as Request has it
	Rows  Query  // by hash, name for people: the numbers of the seat and the office, which it makes
	// Write writes the record, by term, identity, hash, if it has a smaller term. It returns
	// "resigned" if the former leader had, or nobody has led, and "lost" otherwise.
	Write  Query
	Resign Query // by hash, term: the identity is NULL then
	// Leader is by hash. It returns "free" if the office is, and "writes" or "reads", what
	// the server does, with term, microseconds since 1970, and identity in hexadecimal digits.
	Leader Query
}
