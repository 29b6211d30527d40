package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/txlock/txlock"
)

// jobs are taken by whoever is free, and each is done once. Done is how often.
const jobs = "torture.jobs"

// jobsSQL makes a queue of so many jobs.
func jobsSQL(n int) []string {
	statements := []string{
		"CREATE TABLE " + jobs + " (id INT PRIMARY KEY, done INT NOT NULL)",
		"CREATE INDEX jobs_queue ON " + jobs + " (done, id)",
	}
	if n > 0 {
		statements = append(statements, "INSERT INTO "+jobs+" VALUES "+
			strings.TrimSuffix(strings.Repeat("(?, 0), ", n), ", "))
	}
	for id := range n {
		statements[2] = strings.Replace(statements[2], "?", fmt.Sprint(id+1), 1)
	}
	return statements
}

// job does the first job that is free. What is done is checked as the work of a Once.
func (l *library[Tx]) job(ctx context.Context, o *operation, random *rand.Rand, tell func()) error {
	worked := false
	free := txlock.Any[int64](l.locks, jobs, "id", "done = 0 ORDER BY id")
	err := free.Do(ctx, func(ctx context.Context, tx Tx, ids []int64) error {
		o.Work = ids[0]
		err := l.exec(ctx, tx, fmt.Sprintf("UPDATE %s SET done = done + 1 WHERE id = %d", jobs, o.Work))
		if err == nil {
			err = l.work(ctx, tx, o, random, tell)
		}
		worked = err == nil
		return err
	})
	o.Outcome, o.Ran = outcomeOf(err, worked), err == nil
	if o.Granted == 0 && errors.Is(err, txlock.ErrNotAcquired) { // few are left
		o.Outcome, o.Expected = missed, true
		time.Sleep(20 * time.Millisecond)
	}
	o.Expected = o.Expected || errors.Is(err, errUnwilling)
	return err
}

// jobsLeft is how many jobs are not done. One that was done twice is an error.
func (d *database) jobsLeft(ctx context.Context) (left int, err error) {
	twice := 0
	err = d.db.QueryRowContext(ctx, "SELECT COUNT(CASE WHEN done = 0 THEN 1 END), COUNT(CASE WHEN done > 1 THEN 1 "+
		"END) FROM "+jobs).Scan(&left, &twice)
	if err == nil && twice > 0 {
		err = fmt.Errorf("%d jobs were done more than once", twice)
	}
	return left, err
}
