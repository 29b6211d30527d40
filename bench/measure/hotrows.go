package measure

import (
	"context"
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

func (l *Lab) hotRows(ctx context.Context, measurement string, plan HotRowsPlan) ([]results.HotRow, error) {
	var all []results.HotRow
	for _, c := range l.in(contest.HotRow) {
		for _, callers := range plan.Callers {
			all = append(all, results.HotRow{Contestant: c.Name, Callers: callers})
		}
	}
	return fill(ctx, l, measurement, plan.Rounds, all,
		func(h *results.HotRow) (string, *[]results.HotRowRound) { return h.Contestant, &h.Rounds },
		func(ctx context.Context, c contest.Contestant, h results.HotRow) (results.HotRowRound, error) {
			return l.sell(ctx, c, h.Callers, plan)
		})
}

// sell opens a new shop, and has its article sold.
func (l *Lab) sell(ctx context.Context, c contest.Contestant, callers int, plan HotRowsPlan) (
	round results.HotRowRound, err error,
) {
	jobs := make([]crew.Job, plan.Processes)
	for i := range jobs {
		jobs[i].Sell = &crew.Sell{
			Entrant: l.entrant(c, lease, min(callers, plan.Connections)), Callers: callers, First: i * callers,
			Of: plan.Processes * callers,
		}
	}
	books := jobs[0].Sell.Entrant.Books
	if err := openStore(ctx, books); err != nil {
		return round, err
	}
	reports, err := l.crew.Run(ctx, jobs, func() {
		crew.Wait(ctx, crew.Settle)
		crew.Wait(ctx, plan.For)
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
	round.Complaint, err = audit(ctx, books, sold)
	return round, err
}

// opening is the stock at first.
const opening = 1_000_000_000

// openStore creates the stock of the article, and its sales.
func openStore(ctx context.Context, books crew.Books) error {
	return database.Run(ctx, books.Server, books.Address,
		"DROP TABLE IF EXISTS "+contest.StockTable, "DROP TABLE IF EXISTS "+contest.SalesTable,
		"CREATE TABLE "+contest.StockTable+" (article INT PRIMARY KEY, stock BIGINT NOT NULL CHECK (stock >= 0))",
		"CREATE TABLE "+contest.SalesTable+" (id BIGINT PRIMARY KEY, article INT NOT NULL)",
		fmt.Sprintf("INSERT INTO %s VALUES (%d, %d)", contest.StockTable, contest.Article, opening))
}

// audit returns what is wrong. A sale that the end interrupted may be booked or not.
func audit(ctx context.Context, books crew.Books, sold crew.Sold) (complaint string, err error) {
	db, err := books.Open(ctx, 1)
	if err != nil {
		return "", err
	}
	defer db.Close()
	stock, err := db.Number(ctx, nil, "SELECT stock FROM "+contest.StockTable)
	if err != nil {
		return "", err
	}
	sales, err := db.Number(ctx, nil, "SELECT count(*) FROM "+contest.SalesTable)
	if err != nil {
		return "", err
	}
	switch taken := int(opening - stock); {
	case sales > 0 && int(sales) != taken:
		return fmt.Sprintf("%d sales, but %d pieces are gone", sales, taken), nil
	case taken < sold.Confirmed || taken > sold.Confirmed+sold.Unclear:
		return fmt.Sprintf("%d sales were confirmed, and %d may be, but %d pieces are gone", sold.Confirmed,
			sold.Unclear, taken), nil
	}
	return "", nil
}
