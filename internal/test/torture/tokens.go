package main

import "fmt"

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
