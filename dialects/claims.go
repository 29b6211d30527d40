package dialects

import "errors"

// ErrNotPermitted occurs when the user lacks the privilege for a statement of a kind.
var ErrNotPermitted = errors.New("not permitted")

// ClaimSQL are the texts of claims. All times are by the server's clock, in microseconds. A claim
// has a row, and one row of all, whose claim is zeros, has the largest token that Sweep has
// deleted: tokens of a new row count on from there.
//
// A line of a claim has, between blanks: a number, the token, the secret, since, until, what is
// left, and in hexadecimal digits the claim, its holder, and its name.
type ClaimSQL struct {
	Table string
	Read  string // claim: its line
	List  string // the lines of claims that are held, 10 000 at most
	// Keep is Read behind the lock of the row, whatever snapshot the transaction has. It makes the
	// lock one of the cluster where there is one.
	Keep string
	// Take has the line of a claim, by claim, holder, secret, name, how long. Its number is
	// positive if the claim was free and is now the holder's, or was his already, and its end alone
	// is moved. It waits for nobody: what others have locked is not taken. There is no line where
	// somebody makes the row at this moment.
	Take string
	End  string // claim, time, secret: moves the end
	// Look has the positions of those in a list in JSON of claims, and who wants them, in
	// hexadecimal digits, that Take would take now.
	Look  string
	Sweep string // as that of OnceSQL
}
