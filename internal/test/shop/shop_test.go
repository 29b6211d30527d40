package shop

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

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

// Orders are decided once, and the books add up.
func TestLedger(t *testing.T) {
	for _, kind := range []servers.Kind{servers.Postgres(), servers.MySQL, servers.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server := must.Get(servers.Start(t.Context(), kind, servers.Options{}))(t)
			t.Cleanup(func() { require.NoError(t, server.Stop()) })
			db := database.Open(t, map[bool]string{true: "pgx", false: "mysql"}[kind.Postgres()], server.DSN)
			orders := must.Get(Load(1))(t)
			orders = orders[:60]
			opening := StockFor(orders)
			l, booked := New(db, kind.Postgres()), 0
			require.NoError(t, l.Open(t.Context(), opening))
			for part := range slices.Chunk(slices.Concat(orders, orders[:40]), 7) { // some a second time
				require.NoError(t, l.Transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					outcomes, err := l.Decide(ctx, tx, part...)
					for _, outcome := range outcomes {
						if outcome == Booked {
							booked++
						}
					}
					return err
				}))
			}
			books := must.Get(l.Books(t.Context()))(t)
			found := Audit(books, opening, orders, booked)
			require.Empty(t, found.Complaint())
			require.Positive(t, found.Refused)
			require.NoError(t, l.Drop(t.Context(), "shop_slots"))
		})
	}
}
