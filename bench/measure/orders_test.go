package measure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/internal/test/shop"
)

func TestACommitThatTheEndHitIsNoWrongBook(t *testing.T) {
	orders := []shop.Order{{ID: "1", Lines: []shop.Line{{SKU: "a", Quantity: 2}}}}
	books := shop.Books{
		Stock: map[string]int{"a": 3}, Bookings: []shop.Booking{{Order: "1", SKU: "a", Quantity: 2}},
		Decisions: []shop.Decision{{Order: "1", Outcome: shop.Booked}},
	}
	opening := map[string]int{"a": 5}
	of := func(replayed crew.Replayed) string {
		return judge(books, opening, orders, []crew.Message{{Replayed: &replayed}}).Complaint
	}
	require.Empty(t, of(crew.Replayed{Booked: []int{0}, InTime: 1}))
	require.NotEmpty(t, of(crew.Replayed{}), "booked, and nobody knows of it")
	require.Empty(t, of(crew.Replayed{Unclear: 1}))
	require.NotEmpty(t, of(crew.Replayed{Booked: []int{0, 0}}), "confirmed twice, booked once")
}
