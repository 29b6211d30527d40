package shop

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

// Stocked is the percentage of the demand that is in stock. It makes most articles run out, which
// is when races show.
const Stocked = 65

//go:embed orders.csv
var ordersFile string

// Order is an order of a customer, who takes all of it or nothing.
type Order struct {
	ID    string
	Lines []Line // of different articles
}

// Line is one article of an order.
type Line struct {
	SKU      string
	Quantity int
}

// Load returns the orders of the file, replays times, each time as new orders.
func Load(replays int) ([]Order, error) {
	once, err := parseOrders(strings.NewReader(ordersFile))
	if err != nil {
		return nil, fmt.Errorf("orders.csv: %w", err)
	}
	orders := make([]Order, 0, replays*len(once))
	for replay := range replays {
		for _, o := range once {
			// All orders use the same order of articles. Otherwise the updates without a lock would
			// mostly deadlock.
			slices.SortFunc(o.Lines, func(a, b Line) int { return strings.Compare(a.SKU, b.SKU) })
			orders = append(orders, Order{ID: fmt.Sprintf("%s-%d", o.ID, replay+1), Lines: o.Lines})
		}
	}
	return orders, nil
}

// parseOrders reads lines of order,sku,quantity after a header. The lines of an order are adjacent.
func parseOrders(text io.Reader) ([]Order, error) {
	reader := csv.NewReader(text)
	reader.FieldsPerRecord = 3
	if _, err := reader.Read(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var orders []Order
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
		if len(orders) == 0 || orders[len(orders)-1].ID != record[0] {
			orders = append(orders, Order{ID: record[0]})
		}
		last := &orders[len(orders)-1]
		last.Lines = append(last.Lines, Line{SKU: record[1], Quantity: quantity})
	}
}

// StockFor returns the opening stock of each article.
func StockFor(orders []Order) map[string]int {
	stock := make(map[string]int)
	for _, o := range orders {
		for _, l := range o.Lines {
			stock[l.SKU] += l.Quantity
		}
	}
	for sku, demand := range stock {
		stock[sku] = demand * Stocked / 100
	}
	return stock
}

func (o Order) fits(stock map[string]int) bool {
	for _, l := range o.Lines {
		if stock[l.SKU] < l.Quantity {
			return false
		}
	}
	return true
}

// SKUs are the articles of the order.
func (o Order) SKUs() []string {
	skus := make([]string, len(o.Lines))
	for i, l := range o.Lines {
		skus[i] = l.SKU
	}
	return skus
}

// SKUs are the articles of orders, each once.
func SKUs(orders []Order) []string {
	var skus []string
	for _, o := range orders {
		skus = append(skus, o.SKUs()...)
	}
	slices.Sort(skus)
	return slices.Compact(skus)
}

func ids(orders []Order) []string {
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
	}
	return ids
}

func (o Order) quantities() []int {
	quantities := make([]int, len(o.Lines))
	for i, l := range o.Lines {
		quantities[i] = l.Quantity
	}
	return quantities
}
