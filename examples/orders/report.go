package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/txlock/txlock/internal/test/shop"
)

// run is one replay of all orders on one database.
type run struct {
	database  string
	way       way
	orders    int
	deadlocks int // after which a worker tried again
	took      time.Duration
	shop.Findings
}

func introduce(orders []shop.Order) {
	lines := 0
	for _, o := range orders {
		lines += len(o.Lines)
	}
	fmt.Printf("%d real orders (%d, replayed %d times) of %d articles, %d lines. In stock is %d %% of what is "+
		"ordered of each.\n",
		len(orders), len(orders)/replays, replays, len(shop.StockFor(orders)), lines, shop.Stocked)
	fmt.Printf("%d branches with %d connections each place them, %d orders at a time, with Combine %d; each order is "+
		"submitted %d times, at different branches.\n",
		branches, workers, branches*workers, branches*combined, copies)
}

// report says what the audit of one run found.
func (r run) report() {
	complaint := r.Complaint()
	switch {
	case complaint != "":
		fmt.Printf("  audit: WRONG — %s\n", complaint)
	case r.way == unlocked:
		fmt.Println("  audit: nothing went wrong, by luck: nothing prevented it")
	default:
		fmt.Println("  audit: nothing below zero, each order booked exactly once or refused as a whole, the books " +
			"add up")
	}
}

// conclude prints the table, and returns an error if a run with a lock went wrong.
func conclude(runs []run) error {
	fmt.Println()
	// All columns are aligned to the right, for the numbers. The two text columns are padded
	// instead.
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%-13s\t%-13s\t \t \t \tarticles\tunits\tbooked\tdeadlocks\tbooks\t \torders/s\t\n", "", "")
	fmt.Fprintf(table, "%-13s\t%-13s\torders\tbooked\trefused\tbelow zero\toversold\ttwice\tretried\tadd "+
		"up\tseconds\tdecided\t\n", "", "")
	for _, r := range runs {
		fmt.Fprintf(table, "%-13s\t%-13s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%.1f\t%.0f\t\n", r.database, r.way, r.orders,
			r.Booked, r.Refused, r.BelowZero, r.Oversold, r.BookedTwice, r.deadlocks,
			map[bool]string{true: "yes", false: "NO"}[r.AddUp()], r.took.Seconds(), float64(r.orders)/r.took.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Println()

	var faults []error
	var oversold, twice int
	for _, r := range runs {
		switch complaint := r.Complaint(); {
		case r.way == unlocked:
			oversold += r.Oversold
			twice += r.BookedTwice
		case complaint != "":
			faults = append(faults, fmt.Errorf("%s, %s: %s", r.database, r.way, complaint))
		}
	}
	if faults != nil {
		return fmt.Errorf("the lock did not protect: %w", errors.Join(faults...))
	}
	without := fmt.Sprintf("the shop sold %d units that it did not have, and booked %d orders more than once", oversold,
		twice)
	if oversold+twice == 0 {
		without = "nothing was oversold or booked twice this time, by luck"
	}
	fmt.Printf("Without a lock %s.\nWith txlock no article went below zero, every order was booked exactly once or "+
		"refused as a whole, and the\n"+
		"books add up, on each database and in each way.\n", without)
	return nil
}
