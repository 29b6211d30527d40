package measure

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/internal/test/shop"
)

// The sets of orders that are replayed.
const (
	AllOrders       = "all"
	OneArticle      = "one"
	SeveralArticles = "several"
)

const (
	shopProcesses = 4
	shopWorkers   = 8 // in each process
)

// MeasureOrders replays real orders, as `make demo` does, and audits the books.
func (l *Lab) MeasureOrders(ctx context.Context) error {
	entrants := l.in(contest.Data)
	p := l.Orders
	total, done := len(p.Articles)*p.Rounds*len(entrants), 0
	for _, articles := range p.Articles {
		cells := make(map[string]*results.Orders)
		for range p.Rounds {
			for _, c := range l.shuffled(entrants) {
				l.Tell("orders", done, total)
				done++
				round, err := l.replay(ctx, c, articles)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					l.missing(c, "orders", err)
					continue
				}
				if cells[c.Name] == nil {
					cells[c.Name] = &results.Orders{Contestant: c.Name, Articles: articles}
				}
				cells[c.Name].Rounds = append(cells[c.Name].Rounds, round)
			}
		}
		for _, c := range entrants {
			if cell := cells[c.Name]; cell != nil {
				l.run.Orders = append(l.run.Orders, *cell)
			}
		}
	}
	l.Tell("orders", total, total)
	return nil
}

// replay opens a new shop and has the orders placed, each twice, by different processes.
func (l *Lab) replay(ctx context.Context, c contest.Contestant, articles string) (
	round results.OrdersRound, err error,
) {
	orders, err := shop.Load(crew.Replays)
	if err != nil {
		return round, err
	}
	chosen := choose(orders, articles)
	books := l.books(c)
	opening := shop.StockFor(only(orders, chosen))
	ledger, closeLedger, err := crew.OpenShop(ctx, books)
	if err != nil {
		return round, err
	}
	defer closeLedger()
	if err := ledger.Open(ctx, opening); err != nil {
		return round, err
	}
	jobs := make([]crew.Job, shopProcesses)
	for i := range jobs {
		jobs[i] = crew.Job{Replay: &crew.Replay{Entrant: l.entrant(c, lease, shopWorkers), Workers: shopWorkers}}
		for number := range shopWorkers {
			jobs[i].Replay.Rehearsal = append(jobs[i].Replay.Rehearsal, key(keys-1-i*shopWorkers-number))
		}
	}
	for i, index := range chosen {
		for again := range 2 {
			job := jobs[(i+again)%shopProcesses].Replay
			job.Orders = append(job.Orders, index)
		}
	}
	var took time.Duration
	reports, err := l.crew.Run(ctx, jobs, func() { took = l.crew.AwaitAll(ctx, len(jobs), crew.Left, l.Orders.AtMost) })
	if err != nil {
		return round, err
	}
	found, err := ledger.Books(ctx)
	if err != nil {
		return round, err
	}
	round = judge(found, opening, orders, reports)
	round.Took = took
	for _, report := range reports {
		l.failed(c, "orders", report)
	}
	return round, ledger.Drop(ctx)
}

// choose returns the indices of the orders of a set.
func choose(orders []shop.Order, articles string) (indices []int) {
	for i, o := range orders {
		if one := len(o.Lines) == 1; articles == AllOrders || one == (articles == OneArticle) {
			indices = append(indices, i)
		}
	}
	return indices
}

func only(orders []shop.Order, indices []int) (some []shop.Order) {
	for _, index := range indices {
		some = append(some, orders[index])
	}
	return some
}

// judge audits the books, without the orders that nobody had begun before the end.
func judge(books shop.Books, opening map[string]int, orders []shop.Order, reports []crew.Message,
) (round results.OrdersRound) {
	touched := make(map[string]bool)
	for _, d := range books.Decisions {
		touched[d.Order] = true
	}
	for _, b := range books.Bookings {
		touched[b.Order] = true
	}
	confirmed, unclear, inBooks := 0, 0, 0
	for _, report := range reports {
		for _, indices := range [][]int{report.Replayed.Booked, report.Replayed.Refused, report.Replayed.Known} {
			for _, index := range indices {
				touched[orders[index].ID] = true
			}
		}
		confirmed += len(report.Replayed.Booked)
		unclear += report.Replayed.Unclear
		round.Orders += report.Replayed.InTime
	}
	for _, d := range books.Decisions {
		if d.Outcome == shop.Booked {
			inBooks++
		}
	}
	// The end of the replay interrupted these orders while they were being committed.
	if more := inBooks - confirmed; more > 0 && more <= unclear {
		confirmed = inBooks
	}
	var placed []shop.Order
	for _, o := range orders {
		if touched[o.ID] {
			placed = append(placed, o)
		}
	}
	round.Complaint = shop.Audit(books, opening, placed, confirmed).Complaint()
	return round
}
