package dialects

import "errors"

// ErrNotPermitted occurs when the user lacks the privilege for a statement of a kind.
var ErrNotPermitted = errors.New("not permitted")

// ClaimSQL are the texts of claims. All times are by the server's clock, and numbers of
// microseconds. A claim has a row, and one row of all, whose claim is zeros, has the largest token
// that Sweep has deleted: tokens of a row count on from its own, and in a new row from there. No
// new row is made where that one is missing.
//
// A line of a claim has, between blanks: a number, the token, the secret, since, until, and what is
// left, then the claim, its holder, and its name, in hexadecimal digits. The number is positive
// where the statement has done what it is for.
type ClaimSQL struct {
	Table string
	// Read has the line of a claim. Arguments: the claim.
	Read string
	// List has those of claims that are held, 10 000 at most.
	List string
	// Take gives the claim to a holder, unless another has it, and has its line. Where the holder
	// has it, its end alone is moved. It waits for nobody: what others have locked is not taken.
	// There is no line where somebody makes the row at this moment. A new row is made ended, with
	// token 0, by a statement in front: so its token is above what Sweep had deleted before.
	// Arguments: the claim, the holder, 1 to make a new row, 0 not to, the secret, the name, for
	// how long, then the claim, the holder, the secret, the name, how long, the claim, the holder,
	// and the claim.
	Take string
	// End moves the end of a claim that is held, to so long from now, or, with less than 0, to the
	// epoch, and has its line. It waits for who has it locked. Arguments: the claim, how long, the
	// holder, the token, the secret, and the claim twice.
	End string
	// Keep has the line, with a positive number if the claim is held, whatever snapshot the
	// transaction has. It comes behind the lock of the row, which it makes one of the cluster where
	// there is one. Arguments: the claim, twice, the holder, the token, the secret.
	Keep string
	// Look has the positions of those in a list in JSON of claims, and who wants them, in
	// hexadecimal digits, that Take would take now. Arguments: the list, twice.
	Look string
	// Sweep is as that of OnceSQL.
	Sweep string
}
