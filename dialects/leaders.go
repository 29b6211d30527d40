package dialects

import "time"

// Part is one of the three rows of an election. Candidates lock the seat. Who has it draws a term
// with it, writes the record, with Appoint, and then locks the office: while the office is locked,
// the record says who leads. The office is a row of its own, to which nobody writes: a record is
// locked also while it is written, and still says who led before.
type Part int

// The parts, in the order of Rows.Numbers.
const (
	Seat Part = iota
	Record
	Office
)

// Parts is how many there are.
const Parts = 3

// Number is that of one of the rows of an election, for SQL.
func (r Rows) Number(of Part) string { return r.Numbers[of] }

// Part requests one of the rows of an election.
func (r Rows) Part(of Part) Request {
	return Request{Table: r.Table, Column: "id", Values: []Value{{Text: r.Number(of)}}, Ours: true}
}

// Leader is what a record says.
type Leader struct {
	Identity string
	Term     int64
	Since    time.Time // by the server's clock
}
