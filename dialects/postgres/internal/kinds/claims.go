package kinds

import "github.com/txlock/txlock/dialects"

func claimsOf(table string) dialects.ClaimSQL {
	return dialects.ClaimSQL{Table: table, Sweep: sweepOf(table, "claim", "until")}
}
