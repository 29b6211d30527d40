package crew

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/bench/contest"
)

// sell has callers of one client sell one piece after the other of the same article.
func (w *worker) sell(job Sell) (report Message, err error) {
	background := context.Background()
	client, err := job.Entrant.open(background)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	desk, err := openDesk(background, job.Entrant.Books, job.Entrant.Environment.Contenders)
	if err != nil {
		return report, err
	}
	defer desk.close()
	if err := rehearse(client, job.Rehearsal); err != nil {
		return report, err
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	ctx, wait := w.untilStopped()
	sellers := make([]*seller, job.Callers)
	s := &sale{job: job, sell: salesOf(client, desk)}
	var group sync.WaitGroup
	for i := range sellers {
		sellers[i] = &seller{sale: s, number: int64(job.First + i)}
		group.Go(func() { sellers[i].run(ctx) })
	}
	s.window.watch(ctx, func(context.Context) {})
	group.Wait()
	report.Sold = &Sold{Took: s.window.took()}
	for _, one := range sellers {
		report.Sold.Latencies = append(report.Sold.Latencies, one.latencies...)
		report.Sold.Confirmed += one.confirmed
		report.Sold.Unclear += one.unclear
		report.Failed += one.failed
		if one.failure != nil {
			report.Failure = one.failure.Error()
		}
	}
	return report, wait()
}

// salesOf is how a client sells: in a way of its own, or with a transaction under its lock.
func salesOf(client contest.Client, desk *desk) func(ctx context.Context, order int64) error {
	if own, ok := client.(contest.Seller); ok {
		return own.Sell
	}
	return func(ctx context.Context, order int64) error {
		return client.Hold(ctx, []string{"hot"}, func(held context.Context, tx contest.Tx) error {
			return desk.sell(held, tx, order)
		})
	}
}

// sale is what all sellers of a job share.
type sale struct {
	job    Sell
	sell   func(ctx context.Context, order int64) error
	window window
}

// seller sells one piece after the other. It belongs to one goroutine.
type seller struct {
	*sale
	number, sold int64

	latencies                  []int64 // of the sales that were over within the window
	confirmed, unclear, failed int
	failure                    error
}

func (s *seller) run(ctx context.Context) {
	for ctx.Err() == nil {
		asked := Now()
		err := s.sell(ctx, s.sold*int64(s.job.Of)+s.number) // a number of its own
		s.sold++
		switch {
		case err == nil:
			s.confirmed++
			if s.window.open.Load() {
				s.latencies = append(s.latencies, Now()-asked)
			}
		case ctx.Err() != nil:
			s.unclear++ // the end may have interrupted a commit
		default:
			s.failed++
			s.failure = err
			Wait(ctx, breath)
		}
	}
}

// sell books a sale in the lock's own transaction, or in one of its own.
func (d *desk) sell(ctx context.Context, tx contest.Tx, order int64) error {
	if tx != nil {
		return d.bookSale(ctx, tx, order)
	}
	if d.pool != nil {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return d.bookSale(ctx, tx, order) })
	}
	own, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer own.Rollback() // does nothing after the commit
	if err := d.bookSale(ctx, own, order); err != nil {
		return err
	}
	return own.Commit()
}

func (d *desk) bookSale(ctx context.Context, tx contest.Tx, order int64) error {
	if err := d.exec(ctx, tx, "UPDATE "+contest.StockTable+" SET stock = stock - 1 WHERE article = "+d.number(1),
		contest.Article); err != nil {
		return err
	}
	return d.exec(ctx, tx, "INSERT INTO "+contest.SalesTable+" (id, article) VALUES ("+d.number(1)+", "+d.number(2)+")",
		order, contest.Article)
}
