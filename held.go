package txlock

import (
	"fmt"
	"slices"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/lifecycle"
)

// row is what a session holds: a row, or one of those of a semaphore.
type row struct{ table, column, value string }

func rowIn(request dialects.Request, value dialects.Value) row {
	return row{request.Table, request.Column, value.Text}
}

// heldLock is how a session holds a row.
type heldLock struct {
	dialects.Grant
	shared bool
	permit bool // of a semaphore
	// scope is where it was locked while work runs. It is nil for what stays locked until the
	// session ends.
	scope *lifecycle.Scope
}

// covers tells whether the row need not be locked for request. What has a scope is locked anew each
// time: PostgreSQL releases it when a savepoint is rolled back, of ours or of the work's own. So is
// what takes a claim: its token is of its own, and no other work asks for one.
func (h heldLock) covers(request dialects.Request) bool {
	return h.scope == nil && (request.Fence == "" || h.Token > 0 && !request.Work)
}

// missing are the requests that lock, one after the other, what the session does not hold of
// request for certain, or holds without the token that is asked for. It has has of the others, with
// the largest token. The error is ErrUpgrade.
//
// Rows that request shares, and that the session holds alone, as far as it knows, are locked first,
// and alone. That is granted at once. To share them would wait behind others on PostgreSQL, or
// miss.
func (s *session[Tx]) missing(request dialects.Request) (missing []dialects.Request, has dialects.Grant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(map[row]heldLock, len(s.first.Values))
		s.note(s.first, s.granted, nil)
	}
	exclusive := request
	// What a Do nests, and what an Exec runs, comes behind the rest.
	exclusive.Shared, exclusive.Values, exclusive.Work, exclusive.Exec = false, nil, false, nil
	rest := request.Values[:0:0]
	for _, value := range request.Values {
		held, known := s.held[rowIn(request, value)]
		has.Token = max(has.Token, held.Token)
		switch {
		case held.shared && !request.Shared:
			return nil, has, fmt.Errorf("%w (row %.100s of %.100s)", ErrUpgrade, value.Text, request.Table)
		case known && held.covers(request):
			has.Row = value.Text
		case known && !held.shared && request.Shared:
			exclusive.Values = append(exclusive.Values, value)
		default:
			rest = append(rest, value)
			if known && held.permit { // it may be left: it is tried first
				rest = slices.Insert(rest[:len(rest)-1], 0, value)
			}
		}
	}
	if request.AnyOne != "" && has.Row != "" {
		rest = nil
	}
	if request.Values = rest; len(rest) == 0 { // for an Exec, which has all
		request.AnyOne = ""
	}
	for _, one := range []dialects.Request{exclusive, request} {
		if len(one.Values) > 0 || one.Exec != nil {
			missing = append(missing, one)
		}
	}
	return missing, has, nil
}

// addHeld notes what request has locked, while work runs as that of a scope.
func (s *session[Tx]) addHeld(request dialects.Request, got dialects.Grant, scope *lifecycle.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		scope = nil
	}
	s.note(request, got, scope)
}

// note is called with the mutex held. Rows that were held before stay as they were: an exclusive
// lock is not shared because its session asked for less later, and a savepoint that is rolled back
// takes nothing of what was locked before it.
func (s *session[Tx]) note(request dialects.Request, got dialects.Grant, scope *lifecycle.Scope) {
	if got.Row != "" {
		request.Values = []dialects.Value{{Text: got.Row}}
	}
	for _, value := range request.Values {
		held, known := s.held[rowIn(request, value)]
		if !known {
			held = heldLock{shared: request.Shared, permit: request.AnyOne != "", scope: scope}
		}
		if held.scope == nil {
			held.Token = got.Token
		}
		s.held[rowIn(request, value)] = held
	}
}

// dropScope drops the rows that were locked in a scope whose savepoint is rolled back. PostgreSQL
// releases them. On MySQL and MariaDB they stay locked: there a session that goes on to ask for
// such a row alone waits for the others that share it. A permit that may be left is tried first.
func (s *session[Tx]) dropScope(scope *lifecycle.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for row, held := range s.held {
		if held.scope != nil && held.scope.Within(scope) && !held.permit {
			delete(s.held, row)
		}
	}
}
