package dialects

// OnceSQL are the texts of work that is done once. Its marker has the time at which it was done, by
// the server's clock. Times and periods are microseconds, since the Unix epoch; a period of 0 is
// for ever. What was done later than now was done: a clock that was set back runs nothing twice.
type OnceSQL struct {
	Table string
	// Look has a line of the present, and behind a blank of the time of the marker, if it is there.
	// Arguments: the marker.
	Look string
	// Mark writes the marker, and is an error if the work was done in the window of its time.
	// Arguments: the marker, its time, the period.
	Mark string
	// First writes it with the present, and has a line if the work was not done, whatever snapshot
	// the transaction has. Arguments: the marker, a number of no other call, the period, the period,
	// the marker, the number.
	First string
	// Forget deletes it. Arguments: the marker.
	Forget string
	// Sweep is as that of ClaimSQL.
	Sweep string
}
