package dialects

// OnceSQL are the texts of work that is done once. Its marker has the time at which it was done.
// Times, periods and ages are microseconds; a period of 0 is for ever.
type OnceSQL struct {
	Table  string
	Look   string // marker: a line of the present, and behind a blank of the marker's time, if it is there
	Mark   string // marker, time, period: an error if the work was done in the window of the time, or later
	First  string // marker, number, period: a line if it was not done, whatever the snapshot
	Forget string // marker
	// Sweep deletes what is older than an age, and not what others use: time, age, most. It
	// begins at a time, and has a line of how many went, and behind a blank of where to go on.
	Sweep string
}
