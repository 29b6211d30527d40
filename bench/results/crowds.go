package results

import "time"

// Network has the measurements that were made a second time, with a network between the clients and
// the servers.
type Network struct {
	Delay       time.Duration // each way
	Uncontended []Uncontended
	HotRows     []HotRow
}

// Crowd is one process with many callers of one key, and one caller of another key, which is free.
type Crowd struct {
	Contestant string
	Callers    int // of the one key
	Rounds     []CrowdRound
}

// CrowdRound is one round of Crowd.
type CrowdRound struct {
	Took time.Duration
	Hot  int // how often a caller got the key that all want
	// FreeP50 and FreeP99 are the times until the caller of the free key had it. A wait that the
	// end of the round cut off counts with the time until then; Cut says that there was one.
	FreeP50, FreeP99 time.Duration
	Cut              bool
	// Busy is the largest number of sessions that were seen in a transaction or at work, the free
	// key's among them.
	Busy     int
	Overlaps int // number of entries while another was inside
	Failed   int // number of calls that returned an error
}

// Footprint is one process whose callers hold a key each, or wait for the same one.
type Footprint struct {
	Contestant string
	Callers    int
	OneKey     bool
	Began      time.Duration // until all held their keys, or were about to ask for the one
	Memory     float64       // bytes of each caller
	Processor  float64       // share of a core, of all callers, while nothing happens
}

// HotRow is callers that each sell one piece of the same article: one row of stock, and a row for
// each sale.
type HotRow struct {
	Contestant string
	Callers    int // of each process
	Rounds     []HotRowRound
}

// HotRowRound is one round of HotRow.
type HotRowRound struct {
	Took      time.Duration
	Sold      int           // while the round was measured
	P50, P99  time.Duration // from the call to its return
	Complaint string        // what is wrong with stock and sales afterwards; empty: nothing
	Failed    int
}
