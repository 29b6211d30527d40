package dialects

import (
	"cmp"
	"errors"
	"time"
)

// ErrClaimEnded occurs when a claim is not its holder's any more: its time is over, or it was
// released, or broken.
var ErrClaimEnded = errors.New("the claim is not held any more")

// ErrUnreadable occurs when the user may not read the table of claims.
var ErrUnreadable = errors.New("claims may not be read")

// ClaimChange is what becomes of a claim once the row of its key is locked. The claim has a row in
// a table beside the lock table. Its times are by the server's clock, which is read behind the
// lock.
type ClaimChange struct {
	Hash [32]byte
	Verb ClaimVerb
	Name string        // of TakeClaim: the key, for people; empty: it is hidden
	By   string        // who has it, or takes it
	For  time.Duration // of TakeClaim and ExtendClaim: from now, in whole microseconds
	// Token is the holder's. TakeClaim writes it, if it is not 0, and otherwise that of
	// Request.Fence.
	Token int64
	// Secret is drawn at random for each claim. Tokens follow each other, and are the same in other
	// lock tables: so only by it, with By and Token, is a claim the one that was taken.
	Secret int64
}

// Drawn is a copy with a token that was drawn for it, unless it has one.
func (c ClaimChange) Drawn(token int64) *ClaimChange {
	c.Token = cmp.Or(c.Token, token)
	return &c
}

// ClaimVerb is what is done to a claim.
type ClaimVerb byte

const (
	// KeepClaim changes nothing. The claim stays its holder's until the lock is released.
	KeepClaim ClaimVerb = iota
	// TakeClaim gives the claim to By, unless another has it. Where By has it, only its end is
	// moved.
	TakeClaim
	// ExtendClaim moves the end.
	ExtendClaim
	// ReleaseClaim ends the claim. Its row stays, and says that.
	ReleaseClaim
	// BreakClaim ends it as if its time were over.
	BreakClaim
)

// ClaimState is what the row of a claim says. It is zero when there is none.
type ClaimState struct {
	Name         string // the key, for people; empty: it is hidden
	By           string
	Token        int64
	Secret       int64
	Since, Until time.Time
	Left         time.Duration // until the end, by the server's clock; not positive: nobody has it
}

// Released is the end of a claim that its holder has released.
var Released = time.Unix(0, 0)

// MostClaims is how many claims are read when all are asked for.
const MostClaims = 10_000

// ClaimSQL are the texts of claims.
type ClaimSQL struct {
	Table string
	Sweep string // as that of OnceSQL, of claims that have ended
}
