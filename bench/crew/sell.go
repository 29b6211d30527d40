package crew

import (
	"context"
	"sync"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
)

// sell has callers of one client sell one piece after the other of the same article.
func (w *worker) sell(job Sell) (report Message, err error) {
	books, err := job.Entrant.Books.Open(context.Background(), job.Entrant.Environment.Contenders)
	if err != nil {
		return report, err
	}
	defer books.Close()
	sellers := make([]seller, job.Callers)
	s := &sale{of: int64(job.Of)}
	err = w.use(job.Entrant, func(ctx context.Context, client contest.Client) {
		s.sell = salesOf(client, books)
		var group sync.WaitGroup
		for i := range sellers {
			sellers[i] = seller{sale: s, order: int64(job.First + i)}
			group.Go(func() { sellers[i].run(ctx) })
		}
		s.window.watch(ctx, func(context.Context) {})
		group.Wait()
	})
	report.Sold = &Sold{Took: s.window.took()}
	for _, one := range sellers {
		report.Sold.Latencies = append(report.Sold.Latencies, one.latencies...)
		report.Sold.Confirmed += one.confirmed
		report.Sold.Unclear += one.unclear
		report.note(one.failures)
	}
	return report, err
}

// salesOf is how a client sells: in a way of its own, or with a transaction under its lock.
func salesOf(client contest.Client, books *database.Database) func(ctx context.Context, order int64) error {
	if own, ok := client.(contest.Seller); ok {
		return own.Sell
	}
	return func(ctx context.Context, order int64) error {
		book := func(ctx context.Context, tx contest.Tx) error {
			if _, err := books.Exec(ctx, tx, "UPDATE "+contest.StockTable+" SET stock = stock - 1 WHERE article = ?",
				contest.Article); err != nil {
				return err
			}
			_, err := books.Exec(ctx, tx, "INSERT INTO "+contest.SalesTable+" (id, article) VALUES (?, ?)", order,
				contest.Article)
			return err
		}
		return client.Hold(ctx, []string{"hot"}, func(held context.Context, tx contest.Tx) error {
			if tx != nil {
				return book(held, tx)
			}
			return books.Transact(held, func(tx contest.Tx) error { return book(held, tx) })
		})
	}
}

// sale is what all sellers of a job share.
type sale struct {
	of     int64 // number of sellers of all processes
	sell   func(ctx context.Context, order int64) error
	window window
}

// seller sells one piece after the other. It belongs to one goroutine.
type seller struct {
	*sale
	order int64 // number of the next order, which no other seller uses

	latencies          []int64 // of the sales that were over within the window
	confirmed, unclear int
	failures           failures
}

func (s *seller) run(ctx context.Context) {
	for ctx.Err() == nil {
		asked := Now()
		err := s.sell(ctx, s.order)
		s.order += s.of
		switch {
		case err == nil:
			s.confirmed++
			if s.window.open.Load() {
				s.latencies = append(s.latencies, Now()-asked)
			}
		case ctx.Err() != nil:
			s.unclear++ // the end may have interrupted a commit
		default:
			s.failures.add(ctx, err)
		}
	}
}
