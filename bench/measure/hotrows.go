package measure

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/results"
)

// MeasureHotRows measures how many pieces of one article the callers of one process sell, each with
// a row for the sale, and audits stock and sales.
func (l *Lab) MeasureHotRows(ctx context.Context) (err error) {
	l.run.HotRows, err = l.hotRows(ctx, "hot-rows", l.HotRows)
	return err
}

func (l *Lab) hotRows(ctx context.Context, measurement string, plan HotRowsPlan) (measured []results.HotRow,
	err error,
) {
	var all []*results.HotRow
	for _, c := range l.in(contest.HotRow) {
		for _, callers := range plan.Callers {
			all = append(all, &results.HotRow{
				Contestant: c.Name, Processes: plan.Processes, Callers: callers,
				Connections: min(callers, plan.Connections),
			})
		}
	}
	err = rounds(ctx, l, measurement, plan.Rounds, all, func(h *results.HotRow) error {
		c, err := contest.Find(h.Contestant)
		if err != nil {
			return err
		}
		round, err := l.sell(ctx, c, *h, plan.For)
		if err != nil {
			l.missing(c, measurement, err)
			return nil
		}
		h.Rounds = append(h.Rounds, round)
		return nil
	})
	for _, h := range all {
		if len(h.Rounds) > 0 {
			measured = append(measured, *h)
		}
	}
	return measured, err
}

// sell opens a new shop, and has its article sold.
func (l *Lab) sell(ctx context.Context, c contest.Contestant, h results.HotRow, lasts time.Duration) (
	round results.HotRowRound, err error,
) {
	jobs := make([]crew.Job, h.Processes)
	for i := range jobs {
		jobs[i].Sell = &crew.Sell{
			Entrant: l.entrant(c, lease, h.Connections), Callers: h.Callers, First: i * h.Callers,
			Of: h.Processes * h.Callers, Rehearsal: rehearsal(h.Connections),
		}
	}
	store, err := openStore(ctx, jobs[0].Sell.Entrant.Books)
	if err != nil {
		return round, err
	}
	defer store.db.Close()
	reports, err := l.crew.Run(ctx, jobs, func() {
		crew.Wait(ctx, crew.Settle)
		crew.Wait(ctx, lasts)
	})
	if err != nil {
		return round, err
	}
	var sold crew.Sold
	for _, report := range reports {
		l.failed(c, "hot-rows", report)
		round.Failed += report.Failed
		sold.Took = max(sold.Took, report.Sold.Took)
		sold.Confirmed += report.Sold.Confirmed
		sold.Unclear += report.Sold.Unclear
		sold.Latencies = append(sold.Latencies, report.Sold.Latencies...)
	}
	round.Took, round.Sold = sold.Took, len(sold.Latencies)
	round.P50 = time.Duration(results.Quantile(sold.Latencies, 0.5))
	round.P99 = time.Duration(results.Quantile(sold.Latencies, 0.99))
	round.Complaint, err = store.audit(ctx, sold)
	return round, err
}

// store is the stock and the sales of the article.
type store struct{ db *sql.DB }

// opening is the stock at first.
const opening = 1_000_000_000

func openStore(ctx context.Context, books crew.Books) (store, error) {
	db, err := database.SQL(ctx, books.Server, books.Address, 1)
	if err != nil {
		return store{}, err
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + contest.StockTable, "DROP TABLE IF EXISTS " + contest.SalesTable,
		"CREATE TABLE " + contest.StockTable + " (article INT PRIMARY KEY, stock BIGINT NOT NULL)",
		"CREATE TABLE " + contest.SalesTable + " (id BIGINT PRIMARY KEY, article INT NOT NULL)",
		fmt.Sprintf("INSERT INTO %s VALUES (%d, %d)", contest.StockTable, contest.Article, opening),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			_ = db.Close()
			return store{}, fmt.Errorf("%s: %w", books.Server, err)
		}
	}
	return store{db}, nil
}

// audit returns what is wrong. A sale that the end interrupted may be booked or not.
func (s store) audit(ctx context.Context, sold crew.Sold) (complaint string, err error) {
	var stock, sales int
	if err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT stock, (SELECT count(*) FROM %s) FROM %s",
		contest.SalesTable, contest.StockTable)).Scan(&stock, &sales); err != nil {
		return "", err
	}
	switch taken := opening - stock; {
	case sales > 0 && sales != taken:
		return fmt.Sprintf("%d sales, but %d pieces are gone", sales, taken), nil
	case taken < sold.Confirmed || taken > sold.Confirmed+sold.Unclear:
		return fmt.Sprintf("%d sales were confirmed, and %d may be, but %d pieces are gone", sold.Confirmed,
			sold.Unclear, taken), nil
	}
	return "", nil
}
