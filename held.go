package txlock

import (
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/lifecycle"
)

// row is what a session holds.
type row struct{ table, column, value string }

func rowIn(request dialects.Request, value dialects.Value) row {
	return row{request.Table, request.Column, value.Text}
}

// hold is how a session holds a row.
type hold struct {
	token  int64 // 0 without
	shared bool
	// scope is where it was locked while work runs. It is nil for what stays locked until the
	// session ends.
	scope *lifecycle.Scope
}

// heldPermit is a permit that a session has taken, and the token that was drawn with it.
type heldPermit struct {
	number int
	token  int64
}

// missing leaves in request the rows that are to be locked, and returns the largest token of the
// others. again are rows to be locked before, alone: a request that shares asks for them, and the
// session holds them alone, as far as it knows. That is granted at once. To share them would wait
// behind others on PostgreSQL, or miss. The error is ErrUpgrade.
func (s *session[Tx]) missing(request *dialects.Request) (again dialects.Request, token int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.Permit != nil {
		if held := s.permits[request.Permit.Semaphore]; held.number < len(request.Permit.Rows) {
			token = held.token
		}
		return again, token, nil
	}
	if s.held == nil {
		s.held = make(map[row]hold, len(s.first.Values))
		s.note(s.first, s.token, nil)
	}
	if err := s.upgraded(*request); err != nil {
		return again, 0, err
	}
	again = *request
	again.Shared, again.Values, again.Work = false, nil, false // the Nest of a Do comes behind the rest
	missing := request.Values[:0:0]
	for _, value := range request.Values {
		former, held := s.held[rowIn(*request, value)]
		token = max(token, former.token)
		switch {
		case held && former.scope == nil && (request.Fence == "" || former.token > 0):
		case held && !former.shared && request.Shared:
			again.Values = append(again.Values, value)
		default:
			missing = append(missing, value)
		}
	}
	request.Values = missing
	return again, token, nil
}

// upgraded is ErrUpgrade when the session shares a row that request wants alone. It is called with
// the mutex held.
func (s *session[Tx]) upgraded(request dialects.Request) error {
	if request.Shared {
		return nil
	}
	for _, value := range request.Values {
		if s.held[rowIn(request, value)].shared {
			return fmt.Errorf("%w (row %.100s of %.100s)", ErrUpgrade, value.Text, request.Table)
		}
	}
	return nil
}

// hold notes further rows as held, while work runs as those of a scope.
func (s *session[Tx]) hold(request dialects.Request, token int64, scope *lifecycle.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.work {
		scope = nil
	}
	s.note(request, token, scope)
}

// note is called with the mutex held. What was held before stays as it was: an exclusive lock is
// not shared because its session asked for less later, and a savepoint that is rolled back takes
// nothing of what was locked before it.
func (s *session[Tx]) note(request dialects.Request, token int64, scope *lifecycle.Scope) {
	for _, value := range request.Values {
		held, known := s.held[rowIn(request, value)]
		if !known {
			held = hold{shared: request.Shared, scope: scope}
		}
		if held.scope == nil {
			held.token = token
		}
		s.held[rowIn(request, value)] = held
	}
}

// forget forgets what was locked in a scope whose savepoint is rolled back. PostgreSQL releases it.
// On MySQL and MariaDB it stays locked: there a session that goes on to ask for such a row alone
// waits for the others that share it.
func (s *session[Tx]) forget(scope *lifecycle.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for row, held := range s.held {
		if held.scope != nil && held.scope.Within(scope) {
			delete(s.held, row)
		}
	}
}

// has tells whether nothing of request is to be locked, after missing. A Do whose permit may be
// released again has the driver look.
func (s *session[Tx]) has(request dialects.Request, token int64) bool {
	if request.Permit == nil {
		return len(request.Values) == 0
	}
	held, some, certain := s.permitHeld(request.Permit)
	if !some {
		return false
	}
	request.Permit.Held = held.number
	if certain && (request.Fence == "" || token > 0) {
		request.Permit.Taken = held.number
		return true
	}
	return false
}

// holdPermit notes a permit of the session.
func (s *session[Tx]) holdPermit(permit *dialects.Permit, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.permits == nil {
		s.permits = make(map[string]heldPermit)
	}
	s.permits[permit.Semaphore] = heldPermit{permit.Taken, token}
}

// permitHeld is the permit that the session has taken of a semaphore, if it is one of those that
// permit asks for. Certain says that it still has it: a savepoint that was rolled back in the work
// of a Do may have released it.
func (s *session[Tx]) permitHeld(permit *dialects.Permit) (held heldPermit, some, certain bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, some = s.permits[permit.Semaphore]
	some = some && held.number < len(permit.Rows)
	return held, some, some && !s.work
}
