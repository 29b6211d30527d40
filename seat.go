package txlock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/txlock/txlock/dialects"
)

// electionColumn stands where locks of rows have the name of a column.
const electionColumn = "election"

// seat is the seat of an election, whose holder leads it once it has the office.
type seat[Tx any] struct {
	locker   *Locker[Tx]
	election string
	hash     string        // of its name, as the database has it
	rows     dialects.Rows // found by the candidacy that waits for the seat, or has it
}

func (s *seat[Tx]) String() string { return "the election " + strconv.Quote(truncate(s.election)) }
func (s *seat[Tx]) call() Call     { return Call{Column: electionColumn, Names: []string{s.election}} }

// request names the line in which candidates wait. Nothing is looked up in front of it: a crowd of
// candidates would take as many connections. The term comes with the seat: a candidate that is
// stopped in between must not draw a later one than its successor has.
func (s *seat[Tx]) request(context.Context, bool) (dialects.Request, error) {
	return dialects.Request{Fence: s.locker.config.table, Values: []dialects.Value{{Text: s.hash}}}, nil
}

// queueAndBegin lets one candidate of each election go on at the server, which keeps its place as
// long as it leads.
func (s *seat[Tx]) queueAndBegin(ctx, wait context.Context, of fmt.Stringer, request dialects.Request) (g grant[Tx],
	err error,
) {
	line := lineOf(s.locker.config.table, electionColumn, request.Values...)
	only, err := s.locker.awaitPlace(ctx, wait, s.locker.candidates, line, false)
	if err != nil {
		return g, err
	}
	found := false
	defer func() {
		if !found { // also when the client library panicked
			only.Leave()
		}
	}()
	if request.Fence, err = s.find(wait); err != nil {
		return g, err
	}
	found = true // and begin leaves the place
	row := s.rows.Part(dialects.Seat)
	request.Table, request.Column, request.Values, request.Ours = row.Table, row.Column, row.Values, row.Ours
	return s.locker.begin(ctx, wait, of, request, only)
}

// find finds the lock table and the rows of the election, or makes these. The Locker does not
// remember the rows: their table may have been made anew, and the seat be another's.
func (s *seat[Tx]) find(ctx context.Context) (table string, err error) {
	ctx, cancel := context.WithTimeout(ctx, officeTimeout)
	defer cancel()
	found, err := s.locker.find(ctx, false)
	if err != nil {
		return "", err
	}
	named := s.locker.config.named(dialects.KindElection, s.election)
	s.rows, err = s.locker.driver.Rows(ctx, found.Name, named, dialects.Parts, true)
	return found.Name, err
}

func (s *seat[Tx]) invalidate(err error) bool { return s.locker.invalidate(err) }

// leader reads who leads, in rows that the Locker remembers.
func (s *seat[Tx]) leader(ctx context.Context) (leader dialects.Leader, err error) {
	l, of := s.locker, dialects.Named{Kind: dialects.KindElection, Hash: s.hash}
	for range 2 { // it may be installed anew
		var rows dialects.Rows
		rows, err = l.rowsOf(ctx, false, of, dialects.Parts)
		switch {
		case err != nil:
			return leader, err
		case len(rows.Numbers) == 0:
			return leader, ErrNoLeader
		}
		if leader, err = l.driver.Leader(ctx, rows); !l.forgetRows(of.Kind, of.Hash, err) {
			break
		}
	}
	return leader, err
}
