package shop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrdersAreParsed(t *testing.T) {
	orders, err := parseOrders(strings.NewReader("order,sku,quantity\n1,b,6\n1,a,2\n2,b,1\n"))
	require.NoError(t, err)
	require.Equal(t, []Order{{"1", []Line{{"b", 6}, {"a", 2}}}, {"2", []Line{{"b", 1}}}}, orders)

	for _, wrong := range []string{
		"", "order,sku,quantity\n1,a\n", "order,sku,quantity\n1,a,x\n",
		"order,sku,quantity\n1,a,-1\n",
	} {
		_, err := parseOrders(strings.NewReader(wrong))
		require.Error(t, err, "%q", wrong)
	}
}

func TestOrdersAndArticlesOfTheFileAreUnique(t *testing.T) {
	orders, err := Load(10)
	require.NoError(t, err)
	seen := make(map[string]bool)
	for _, o := range orders {
		require.False(t, seen[o.ID], "order %s", o.ID)
		seen[o.ID] = true
		articles := make(map[string]bool)
		for _, l := range o.Lines {
			require.False(t, articles[l.SKU], "article %s of order %s", l.SKU, o.ID)
			articles[l.SKU] = true
		}
	}
}

func TestAuditFindsWhatIsWrong(t *testing.T) {
	opening := map[string]int{"a": 5, "b": 5}
	orders := []Order{{"1", []Line{{"a", 2}, {"b", 1}}}, {"2", []Line{{"a", 4}}}}
	first := []Booking{{"1", "a", 2}, {"1", "b", 1}}
	second := Booking{"2", "a", 4}

	for name, c := range map[string]struct {
		books     Books
		confirmed int
		want      Findings
	}{
		"nothing": {
			Books{map[string]int{"a": 3, "b": 4}, first, []Decision{{"1", Booked}, {"2", Refused}}},
			1,
			Findings{Booked: 1, Refused: 1},
		},
		"oversold": {
			Books{map[string]int{"a": -1, "b": 4}, append(first, second), []Decision{{"1", Booked}, {"2", Booked}}},
			2,
			Findings{Booked: 2, BelowZero: 1, Oversold: 1},
		},
		"booked twice": {
			Books{
				map[string]int{"a": 1, "b": 3},
				append(first, first...),
				[]Decision{{"1", Booked}, {"1", Booked}, {"2", Refused}},
			},
			2,
			Findings{Booked: 1, Refused: 1, BookedTwice: 1},
		},
		"booked and refused": {
			Books{map[string]int{"a": 3, "b": 4}, first, []Decision{{"1", Booked}, {"2", Refused}, {"1", Refused}}},
			1,
			Findings{Booked: 1, Refused: 1, Unclear: 1, Needless: 1},
		},
		"refused twice": {
			Books{map[string]int{"a": 3, "b": 4}, first, []Decision{{"1", Booked}, {"2", Refused}, {"2", Refused}}},
			1,
			Findings{Booked: 1, Refused: 1, Unclear: 1},
		},
		"forgotten": {
			Books{map[string]int{"a": 3, "b": 4}, first, []Decision{{"1", Booked}}},
			1,
			Findings{Booked: 1, Unclear: 1},
		},
		"in part": {
			Books{map[string]int{"a": 3, "b": 5}, first[:1], []Decision{{"1", Booked}, {"2", Refused}}},
			1,
			Findings{Booked: 1, Refused: 1, InPart: 1},
		},
		"refused and booked in part": {
			Books{
				map[string]int{"a": 0, "b": 4},
				append(first, Booking{"2", "a", 3}),
				[]Decision{{"1", Booked}, {"2", Refused}},
			},
			1,
			Findings{Booked: 1, Refused: 1, InPart: 1},
		},
		"refused without need": {
			Books{opening, nil, []Decision{{"1", Refused}, {"2", Refused}}},
			0,
			Findings{Refused: 2, Needless: 2},
		},
		"a lost update": {
			Books{map[string]int{"a": 3, "b": 5}, first, []Decision{{"1", Booked}, {"2", Refused}}},
			1,
			Findings{Booked: 1, Refused: 1, Mismatched: 1},
		},
		"a lost commit": {
			Books{opening, nil, []Decision{{"2", Booked}}},
			2,
			Findings{Booked: 1, Unclear: 1, InPart: 1, Unconfirmed: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := Audit(c.books, opening, orders, c.confirmed)
			require.Equal(t, c.want, found)
			require.Equal(t, name == "nothing", found.Complaint() == "")
		})
	}
}
