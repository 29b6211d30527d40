package mysql

import (
	"context"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
)

const (
	// guardSQL changes the settings of a session of a caller's pool: autocommit, which also begins
	// the transaction, and wait_timeout, which is the lease. They are restored with the end of the
	// transaction.
	guardSQL = "SET @txlock_autocommit = @@autocommit, @txlock_wait_timeout = @@wait_timeout, autocommit = 0, " +
		"wait_timeout = "
	restored = "autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " +
		"@txlock = NULL, @txlock_autocommit = NULL, @txlock_wait_timeout = NULL, @txlock_run = NULL"

	// guardWorkSQL goes with guardSQL where work will run: it reads at READ COMMITTED. The level is
	// the session's, because that of a single transaction would outlive one that SET commits.
	guardWorkSQL = ", @txlock_isolation = " + isolation + ", " + isolation + " = 'READ-COMMITTED'"
	restoredWork = ", " + isolation + " = @txlock_isolation, @txlock_isolation = NULL"

	// isolation is the variable on MySQL, and on MariaDB, where only version 11.1 and later have it
	// by the same name.
	isolation = "/*!80001 @@session.transaction_isolation */ /*M! @@session.tx_isolation */"

	// commits ends a transaction in the statement that restores the settings: a server that is told
	// to switch autocommit on commits (MySQL manual, section 15.3.1). A commit that the server
	// refuses is the statement's error. It comes first, because the server assigns from left to
	// right. It reads all values before.
	commits = "autocommit = 1, "
)

// settings is the statement that gives the session the settings that a lock needs. On a pool of
// Open they stay, so it is empty for all locks but a connection's first.
func (s *session) settings(request dialects.Request) (string, error) {
	text := guardSQL
	if s.owned != nil {
		s.fence = s.owned.fence
		if s.owned.lease == request.Lease && (request.Fence == "" || request.Fence == s.fence) {
			return "", nil
		}
		text = "SET wait_timeout = "
		// The pool lets its idle connections go before the server does.
		s.driver.db.SetConnMaxIdleTime(request.Lease / 2)
		s.owned.lease, s.owned.fence = 0, "" // until it is known what the session has
	}
	text += strconv.Itoa(int((request.Lease + time.Second - 1) / time.Second))
	if s.owned == nil && request.Work {
		text += guardWorkSQL
	}
	if !s.several && !s.driver.mute.Load() {
		text += ", " + announceSQL(request)
	}
	if request.Fence != "" {
		f, err := fenceOf(request.Fence)
		if err != nil {
			return "", err
		}
		text += ", " + f.read()
	}
	s.settled = s.owned == nil
	return text, nil
}

// settle notes that the session has the settings of request.
func (s *session) settle(request dialects.Request) {
	s.fence = request.Fence
	if s.owned != nil {
		s.owned.lease, s.owned.fence = request.Lease, request.Fence
	}
}

// restore gives a connection of the caller's its settings back, in a query that begins with end.
func (s *session) restore(ctx context.Context, end string) error {
	if !s.settled {
		return nil
	}
	query := end + restored
	if s.loan != nil {
		query += restoredWork
	}
	err := s.exec(ctx, query)
	s.settled = err != nil
	return err
}
