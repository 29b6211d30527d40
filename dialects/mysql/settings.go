package mysql

import (
	"context"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
)

const (
	// guardSQL changes the settings of a session of a caller's pool: autocommit, which also begins
	// the transaction, and wait_timeout, which is the lease. They are restored behind the lock.
	guardSQL = "SET @txlock_autocommit = @@autocommit, @txlock_wait_timeout = @@wait_timeout, autocommit = 0, " +
		"wait_timeout = "
	unguardSQL = "SET autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " + forgetSQL
	forgetSQL  = "@txlock = NULL, @txlock_autocommit = NULL, @txlock_wait_timeout = NULL, @txlock_run = NULL"

	// releaseSQL also ends a transaction that has written nothing, in one trip: a server that is
	// told to switch autocommit on commits (MySQL manual, section 15.3.1).
	releaseSQL = "SET autocommit = 1, autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " +
		forgetSQL
)

// settle gives the session the settings that a lock needs. On a pool of Open they stay, so that
// only the first time costs a trip.
func (s *session) settle(ctx context.Context, request dialects.Request) error {
	text := guardSQL
	if s.owned != nil {
		s.fence = s.owned.fence
		if s.owned.lease == request.Lease && (request.Fence == "" || request.Fence == s.fence) {
			return nil
		}
		text = "SET wait_timeout = "
		// The pool lets its idle connections go before the server does.
		s.driver.db.SetConnMaxIdleTime(request.Lease / 2)
	}
	text += strconv.Itoa(int((request.Lease + time.Second - 1) / time.Second))
	if s.owned == nil && !s.driver.mute.Load() {
		text += ", " + announceSQL(request)
	}
	var f fence
	if request.Fence != "" {
		var err error
		if f, err = fenceOf(request.Fence); err != nil {
			return err
		}
		text += ", " + f.read()
	}
	if s.owned != nil {
		s.owned.lease, s.owned.fence = 0, "" // until it is known what the session has
	}
	if _, err := s.conn.ExecContext(ctx, text); err != nil {
		return f.explain(request.Fence, err)
	}
	s.fence, s.settled = request.Fence, true
	if s.owned != nil {
		s.owned.lease, s.owned.fence = request.Lease, request.Fence
	}
	return nil
}

// restore gives a connection of the caller's its settings back.
func (s *session) restore(ctx context.Context, query string) error {
	if s.owned != nil || !s.settled {
		return nil
	}
	s.settled = false
	return s.exec(ctx, query)
}
