package main

import (
	"fmt"
	"strings"
)

// books is what the tables say after a run.
type books struct {
	stock     map[string]int
	bookings  []booking
	decisions []decision
}

type booking struct {
	Order, SKU string
	Quantity   int
}

type decision struct {
	Order   string
	Outcome outcome
}

// findings is what an audit found. Of a shop that works, everything but the first two numbers is zero.
type findings struct {
	booked, refused int // orders, by their first decision

	belowZero   int // articles
	oversold    int // units that were sold and never there
	bookedTwice int // orders
	unclear     int // orders not booked twice, and yet not decided exactly once
	inPart      int // orders whose lines are not what was ordered, as often as it was booked
	needless    int // orders that were refused although even the stock that is left suffices
	mismatched  int // articles with opening stock - bookings ≠ stock
	unconfirmed int // difference between the bookings that workers confirmed and those in the books
}

// audit compares the books with what was in stock at the opening, what was ordered, and how many bookings the workers
// confirmed.
func audit(b books, opening map[string]int, orders []order, confirmed int) findings {
	f := findings{unconfirmed: confirmed}
	bookings, refusals := b.decided()
	lines, sold := b.sold()
	for _, o := range orders {
		f.unconfirmed -= bookings[o.id]
		switch {
		case bookings[o.id] > 0:
			f.booked++
		case refusals[o.id] > 0:
			f.refused++
		}
		switch {
		case bookings[o.id] > 1:
			f.bookedTwice++
		case bookings[o.id]+refusals[o.id] != 1:
			f.unclear++
		}
		if refusals[o.id] > 0 && o.fits(b.stock) {
			f.needless++
		}
		if !complete(o, bookings[o.id], lines[o.id]) {
			f.inPart++
		}
	}
	for sku, before := range opening {
		if b.stock[sku] < 0 {
			f.belowZero++
		}
		f.oversold += max(0, sold[sku]-before)
		if before-sold[sku] != b.stock[sku] {
			f.mismatched++
		}
	}
	f.unconfirmed = max(f.unconfirmed, -f.unconfirmed)
	return f
}

// decided counts, for each order, how often it was booked and how often refused.
func (b books) decided() (bookings, refusals map[string]int) {
	bookings, refusals = make(map[string]int), make(map[string]int)
	for _, d := range b.decisions {
		if d.Outcome == booked {
			bookings[d.Order]++
		} else {
			refusals[d.Order]++
		}
	}
	return bookings, refusals
}

// sold adds up what was booked: by order and article, and by article.
func (b books) sold() (byOrder map[string]map[string]int, byArticle map[string]int) {
	byOrder, byArticle = make(map[string]map[string]int), make(map[string]int)
	for _, line := range b.bookings {
		if byOrder[line.Order] == nil {
			byOrder[line.Order] = make(map[string]int)
		}
		byOrder[line.Order][line.SKU] += line.Quantity
		byArticle[line.SKU] += line.Quantity
	}
	return byOrder, byArticle
}

func complete(o order, times int, lines map[string]int) bool {
	if times == 0 {
		return len(lines) == 0
	}
	for _, l := range o.lines {
		if lines[l.sku] != times*l.quantity {
			return false
		}
	}
	return len(lines) == len(o.lines)
}

func (f findings) addUp() bool { return f.mismatched == 0 && f.inPart == 0 }

// complaint says what is wrong, and is empty if nothing is.
func (f findings) complaint() string {
	var faults []string
	for _, fault := range []struct {
		count int
		text  string
	}{
		{f.belowZero, "articles below zero"},
		{f.oversold, "units sold that were not there"},
		{f.bookedTwice, "orders booked more than once"},
		{f.unclear, "other orders not decided exactly once"},
		{f.inPart, "orders booked in part"},
		{f.needless, "orders refused although the stock sufficed"},
		{f.mismatched, "articles that do not add up"},
		{f.unconfirmed, "bookings confirmed and missing, or the reverse"},
	} {
		if fault.count > 0 {
			faults = append(faults, fmt.Sprintf("%s: %d", fault.text, fault.count))
		}
	}
	return strings.Join(faults, "; ")
}
