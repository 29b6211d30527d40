package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// latest is the highest token of a key so far, with its holder.
type latest struct {
	token  int64
	holder *operation
}

// tokens checks the fencing tokens of the whole run.
type tokens struct {
	byKey   map[int]latest
	writers map[int]latest // the same, of those that did not share
}

func newTokens() tokens { return tokens{map[int]latest{}, map[int]latest{}} }

// check checks that tokens rise in the order of the grants, but for those of readers among
// themselves. Suppose that g learned of its grant before h did. If h kept the lock until it gave it
// back, g was granted first: otherwise both would have had the lock. If h may have lost the lock,
// that does not follow, and g counts only if it was granted before h called.
func (t *tokens) check(key int, holds []hold) []violation {
	var violations []violation
	report := func(text string, operations ...*operation) {
		violations = append(violations, violation{ruleTokens, fmt.Sprintf("key %d: %s", key, text), operations})
	}
	var granted []hold // in this epoch, in order
	for _, h := range holds {
		if !h.Verb.holds() {
			continue
		}
		if h.Token <= 0 {
			report(fmt.Sprintf("%d is no token", h.Token), h.operation)
			continue
		}
		limit := t.byKey[key]
		if h.Verb.shares() {
			limit = t.writers[key]
		}
		for _, g := range granted {
			if (!h.broken || g.Granted < h.Call) && g.Token > limit.token && !(g.Verb.shares() && h.Verb.shares()) {
				limit = latest{g.Token, g.operation}
			}
			if g.Token == h.Token {
				report("two holders have the same token", g.operation, h.operation)
			}
		}
		if h.Token < limit.token {
			report("a token is lower than that of an earlier holder", limit.holder, h.operation)
		}
		granted = append(granted, h)
	}
	for _, g := range granted {
		if g.Token > t.byKey[key].token {
			t.byKey[key] = latest{g.Token, g.operation}
		}
		if !g.Verb.shares() && g.Token > t.writers[key].token {
			t.writers[key] = latest{g.Token, g.operation}
		}
	}
	return violations
}

// writeFenced adds 1 to a value outside the lock's transaction. The store records the token before
// the value is read, and refuses writes with an older token. So a former holder cannot overwrite
// newer values.
func (l *library[Tx]) writeFenced(ctx context.Context, o *operation) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	o.Fence = &fence{Call: now(), Outcome: unknown}
	defer func() { o.Fence.Return = now() }()
	taken, err := l.store.ExecContext(ctx, fmt.Sprintf(
		"UPDATE %s SET token = %d WHERE k = %d AND token < %d", fenced, o.Token, o.Keys[0], o.Token))
	if o.Fence.Outcome = verdict(taken, err, open); o.Fence.Outcome != done {
		return
	}
	query := fmt.Sprintf("SELECT value FROM %s WHERE k = %d", fenced, o.Keys[0])
	if err := l.store.QueryRowContext(ctx, query).Scan(&o.Fence.Read); err != nil {
		o.Fence.Outcome = open
		return
	}
	written, err := l.store.ExecContext(ctx, fmt.Sprintf(
		"UPDATE %s SET value = %d WHERE k = %d AND token = %d", fenced, o.Fence.Read+1, o.Keys[0], o.Token))
	o.Fence.Outcome = verdict(written, err, unknown)
}

// verdict is done if a row was changed, failed if none was, and broken after an error.
func verdict(result sql.Result, err error, broken outcome) outcome {
	if err != nil {
		return broken
	}
	switch changed, err := result.RowsAffected(); {
	case err != nil:
		return broken
	case changed == 1:
		return done
	}
	return failed
}
