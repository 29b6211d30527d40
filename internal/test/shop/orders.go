package shop

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"maps"
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

// most is how many articles an order may have: one lock takes 256 rows. Few have more.
const most = 200

// Load returns the orders of the file, replays times, each time as new orders.
func Load(replays int) ([]Order, error) {
	once, err := parseOrders()
	if err != nil {
		return nil, fmt.Errorf("orders.csv: %w", err)
	}
	orders := make([]Order, 0, replays*len(once))
	for replay := range replays {
		for _, o := range once {
			if len(o.Lines) > most {
				continue
			}
			orders = append(orders, Order{ID: fmt.Sprintf("%s-%d", o.ID, replay+1), Lines: o.Lines})
		}
	}
	return orders, nil
}

// parseOrders reads lines of order,sku,quantity after a header. The lines of an order are adjacent.
func parseOrders() (orders []Order, err error) {
	records, err := csv.NewReader(strings.NewReader(ordersFile)).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, record := range records[1:] {
		quantity, err := strconv.Atoi(record[2])
		if err != nil {
			return nil, err
		}
		if len(orders) == 0 || orders[len(orders)-1].ID != record[0] {
			orders = append(orders, Order{ID: record[0]})
		}
		last := &orders[len(orders)-1]
		last.Lines = append(last.Lines, Line{SKU: record[1], Quantity: quantity})
	}
	return orders, nil
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

// SKUs are the articles of orders, each once, as arguments of a statement.
func SKUs(orders []Order) []any {
	articles := make(map[string]bool)
	for _, o := range orders {
		for _, l := range o.Lines {
			articles[l.SKU] = true
		}
	}
	var skus []any
	for _, sku := range slices.Sorted(maps.Keys(articles)) {
		skus = append(skus, sku)
	}
	return skus
}
