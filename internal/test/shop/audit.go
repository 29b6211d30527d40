package shop

import (
	"fmt"
	"strings"
)

// Books is the content of the tables after a run.
type Books struct {
	Stock     map[string]int
	Bookings  []Booking
	Decisions []Decision
}

// Booking is a line of an order that was booked.
type Booking struct {
	Order, SKU string
	Quantity   int
}

// Decision is the decision about an order.
type Decision struct {
	Order   string
	Outcome Outcome
}

// Findings is the result of an audit. In a correct shop everything except the first two numbers is
// 0.
type Findings struct {
	Booked, Refused int // orders, by their first decision

	BelowZero   int // articles
	Oversold    int // units that were sold but never in stock
	BookedTwice int // orders
	Unclear     int // orders not decided exactly once, without those booked twice
	InPart      int // orders whose booked lines differ from what was ordered
	Needless    int // orders refused although even the remaining stock suffices
	Mismatched  int // articles with opening stock - bookings ≠ stock
	Unconfirmed int // difference between the bookings confirmed by workers and those in the books
}

// Audit compares the books with what was in stock at the opening, what was ordered, and how many
// bookings the workers confirmed.
func Audit(b Books, opening map[string]int, orders []Order, confirmed int) Findings {
	f := Findings{Unconfirmed: confirmed}
	bookings, refusals := b.decided()
	lines, sold := b.sold()
	for _, o := range orders {
		f.Unconfirmed -= bookings[o.ID]
		switch {
		case bookings[o.ID] > 0:
			f.Booked++
		case refusals[o.ID] > 0:
			f.Refused++
		}
		switch {
		case bookings[o.ID] > 1:
			f.BookedTwice++
		case bookings[o.ID]+refusals[o.ID] != 1:
			f.Unclear++
		}
		if refusals[o.ID] > 0 && o.fits(b.Stock) {
			f.Needless++
		}
		if !complete(o, bookings[o.ID], lines[o.ID]) {
			f.InPart++
		}
	}
	for sku, before := range opening {
		if b.Stock[sku] < 0 {
			f.BelowZero++
		}
		f.Oversold += max(0, sold[sku]-before)
		if before-sold[sku] != b.Stock[sku] {
			f.Mismatched++
		}
	}
	f.Unconfirmed = max(f.Unconfirmed, -f.Unconfirmed)
	return f
}

// decided counts, for each order, how often it was booked and how often refused.
func (b Books) decided() (bookings, refusals map[string]int) {
	bookings, refusals = make(map[string]int), make(map[string]int)
	for _, d := range b.Decisions {
		if d.Outcome == Booked {
			bookings[d.Order]++
		} else {
			refusals[d.Order]++
		}
	}
	return bookings, refusals
}

// sold sums up the bookings by order and article, and by article.
func (b Books) sold() (byOrder map[string]map[string]int, byArticle map[string]int) {
	byOrder, byArticle = make(map[string]map[string]int), make(map[string]int)
	for _, line := range b.Bookings {
		if byOrder[line.Order] == nil {
			byOrder[line.Order] = make(map[string]int)
		}
		byOrder[line.Order][line.SKU] += line.Quantity
		byArticle[line.SKU] += line.Quantity
	}
	return byOrder, byArticle
}

func complete(o Order, times int, lines map[string]int) bool {
	if times == 0 {
		return len(lines) == 0
	}
	for _, l := range o.Lines {
		if lines[l.SKU] != times*l.Quantity {
			return false
		}
	}
	return len(lines) == len(o.Lines)
}

// AddUp reports whether the books are consistent.
func (f Findings) AddUp() bool { return f.Mismatched == 0 && f.InPart == 0 }

// Complaint says what is wrong. It is empty if nothing is.
func (f Findings) Complaint() string {
	var faults []string
	for _, fault := range []struct {
		count int
		text  string
	}{
		{f.BelowZero, "articles below zero"},
		{f.Oversold, "units sold that were not there"},
		{f.BookedTwice, "orders booked more than once"},
		{f.Unclear, "other orders not decided exactly once"},
		{f.InPart, "orders booked in part"},
		{f.Needless, "orders refused although the stock sufficed"},
		{f.Mismatched, "articles that do not add up"},
		{f.Unconfirmed, "bookings confirmed and missing, or the reverse"},
	} {
		if fault.count > 0 {
			faults = append(faults, fmt.Sprintf("%s: %d", fault.text, fault.count))
		}
	}
	return strings.Join(faults, "; ")
}
