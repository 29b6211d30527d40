package main

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// replays is how often the file's orders are placed, each time as new ones.
	replays = 10
	// stocked is the percentage of the demand that is in stock. So most articles run out, which is when races show.
	stocked = 65
)

//go:embed orders.csv
var ordersFile string

// order is what a customer wants, all of it or nothing.
type order struct {
	id    string
	lines []line // of different articles
}

type line struct {
	sku      string
	quantity int
}

func loadOrders() ([]order, error) {
	once, err := parseOrders(strings.NewReader(ordersFile))
	if err != nil {
		return nil, fmt.Errorf("orders.csv: %w", err)
	}
	orders := make([]order, 0, replays*len(once))
	for replay := range replays {
		for _, o := range once {
			// In an order that is the same for all, or without a lock the updates would mostly deadlock.
			slices.SortFunc(o.lines, func(a, b line) int { return strings.Compare(a.sku, b.sku) })
			orders = append(orders, order{id: fmt.Sprintf("%s-%d", o.id, replay+1), lines: o.lines})
		}
	}
	return orders, nil
}

// parseOrders reads lines of order,sku,quantity below a header. The lines of an order follow one another.
func parseOrders(text io.Reader) ([]order, error) {
	reader := csv.NewReader(text)
	reader.FieldsPerRecord = 3
	if _, err := reader.Read(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var orders []order
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return orders, nil
		}
		if err != nil {
			return nil, err
		}
		quantity, err := strconv.Atoi(record[2])
		if err != nil || quantity <= 0 {
			at, _ := reader.FieldPos(2)
			return nil, fmt.Errorf("line %d: quantity %q is not a positive number", at, record[2])
		}
		if len(orders) == 0 || orders[len(orders)-1].id != record[0] {
			orders = append(orders, order{id: record[0]})
		}
		last := &orders[len(orders)-1]
		last.lines = append(last.lines, line{sku: record[1], quantity: quantity})
	}
}

// stockFor returns what is in stock of each article when the shop opens.
func stockFor(orders []order) map[string]int {
	stock := make(map[string]int)
	for _, o := range orders {
		for _, l := range o.lines {
			stock[l.sku] += l.quantity
		}
	}
	for sku, demand := range stock {
		stock[sku] = demand * stocked / 100
	}
	return stock
}

func (o order) fits(stock map[string]int) bool {
	for _, l := range o.lines {
		if stock[l.sku] < l.quantity {
			return false
		}
	}
	return true
}

func (o order) skus() []string {
	skus := make([]string, len(o.lines))
	for i, l := range o.lines {
		skus[i] = l.sku
	}
	return skus
}

func (o order) quantities() []int {
	quantities := make([]int, len(o.lines))
	for i, l := range o.lines {
		quantities[i] = l.quantity
	}
	return quantities
}
