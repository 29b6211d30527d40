package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrdersAreParsed(t *testing.T) {
	orders, err := parseOrders(strings.NewReader("order,sku,quantity\n1,b,6\n1,a,2\n2,b,1\n"))
	require.NoError(t, err)
	require.Equal(t, []order{{"1", []line{{"b", 6}, {"a", 2}}}, {"2", []line{{"b", 1}}}}, orders)

	for _, wrong := range []string{"", "order,sku,quantity\n1,a\n", "order,sku,quantity\n1,a,x\n", "order,sku,quantity\n1,a,-1\n"} {
		_, err := parseOrders(strings.NewReader(wrong))
		require.Error(t, err, "%q", wrong)
	}
}

func TestOrdersAndArticlesOfTheFileAreUnique(t *testing.T) {
	orders, err := loadOrders()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for _, o := range orders {
		require.False(t, seen[o.id], "order %s", o.id)
		seen[o.id] = true
		articles := make(map[string]bool)
		for _, l := range o.lines {
			require.False(t, articles[l.sku], "article %s of order %s", l.sku, o.id)
			articles[l.sku] = true
		}
	}
}

func TestOrdersAreSubmittedToDifferentProcesses(t *testing.T) {
	const orders = 10
	times := make(map[int]int)
	for process := range processes {
		inProcess := make(map[int]bool)
		for _, index := range share(process, orders) {
			require.False(t, inProcess[index], "order %d twice to process %d", index, process)
			inProcess[index] = true
			times[index]++
		}
	}
	for index := range orders {
		require.Equal(t, copies, times[index], "order %d", index)
	}
}

func TestAuditFindsWhatIsWrong(t *testing.T) {
	opening := map[string]int{"a": 5, "b": 5}
	orders := []order{{"1", []line{{"a", 2}, {"b", 1}}}, {"2", []line{{"a", 4}}}}
	first := []booking{{"1", "a", 2}, {"1", "b", 1}}
	second := booking{"2", "a", 4}

	for name, c := range map[string]struct {
		books     books
		confirmed int
		want      findings
	}{
		"nothing": {
			books{map[string]int{"a": 3, "b": 4}, first, []decision{{"1", booked}, {"2", refused}}},
			1,
			findings{booked: 1, refused: 1},
		},
		"oversold": {
			books{map[string]int{"a": -1, "b": 4}, append(first, second), []decision{{"1", booked}, {"2", booked}}},
			2,
			findings{booked: 2, belowZero: 1, oversold: 1},
		},
		"booked twice": {
			books{map[string]int{"a": 1, "b": 3}, append(first, first...), []decision{{"1", booked}, {"1", booked}, {"2", refused}}},
			2,
			findings{booked: 1, refused: 1, bookedTwice: 1},
		},
		"booked and refused": {
			books{map[string]int{"a": 3, "b": 4}, first, []decision{{"1", booked}, {"2", refused}, {"1", refused}}},
			1,
			findings{booked: 1, refused: 1, unclear: 1, needless: 1},
		},
		"refused twice": {
			books{map[string]int{"a": 3, "b": 4}, first, []decision{{"1", booked}, {"2", refused}, {"2", refused}}},
			1,
			findings{booked: 1, refused: 1, unclear: 1},
		},
		"forgotten": {
			books{map[string]int{"a": 3, "b": 4}, first, []decision{{"1", booked}}},
			1,
			findings{booked: 1, unclear: 1},
		},
		"in part": {
			books{map[string]int{"a": 3, "b": 5}, first[:1], []decision{{"1", booked}, {"2", refused}}},
			1,
			findings{booked: 1, refused: 1, inPart: 1},
		},
		"refused and booked in part": {
			books{map[string]int{"a": 0, "b": 4}, append(first, booking{"2", "a", 3}), []decision{{"1", booked}, {"2", refused}}},
			1,
			findings{booked: 1, refused: 1, inPart: 1},
		},
		"refused without need": {
			books{opening, nil, []decision{{"1", refused}, {"2", refused}}},
			0,
			findings{refused: 2, needless: 2},
		},
		"a lost update": {
			books{map[string]int{"a": 3, "b": 5}, first, []decision{{"1", booked}, {"2", refused}}},
			1,
			findings{booked: 1, refused: 1, mismatched: 1},
		},
		"a lost commit": {
			books{opening, nil, []decision{{"2", booked}}},
			2,
			findings{booked: 1, unclear: 1, inPart: 1, unconfirmed: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := audit(c.books, opening, orders, c.confirmed)
			require.Equal(t, c.want, found)
			require.Equal(t, name == "nothing", found.complaint() == "")
		})
	}
}
