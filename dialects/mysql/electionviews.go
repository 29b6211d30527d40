package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// InspectElections implements dialects.Electorate. It looks for held rows as Inspect does.
func (d *Driver) InspectElections(ctx context.Context, table string, only []string) (
	states []dialects.RowState, err error,
) {
	leaders, err := leadersOf(table)
	if err != nil {
		return nil, err
	}
	err = d.lookBeside(ctx, leaders, "election", "part = 'seat'", only,
		func(_ context.Context, _ *sql.Conn, p *picture, rows [][]string) error {
			states = p.elections(leaders, rows)
			return nil
		})
	return states, err
}

// elections puts the picture together.
func (p *picture) elections(leaders string, rows [][]string) (states []dialects.RowState) {
	bySeat := map[string][]rowLock{}
	for _, lock := range p.locks {
		if lock.table == p.slots() && lock.index == primary {
			bySeat[lock.value] = append(bySeat[lock.value], lock)
		}
	}
	for _, row := range rows {
		seat, election := row[0], row[1]
		state := state(rowName{leaders, "id", seat}, bySeat[seat])
		if state.Election = election; state.Holder != nil || len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	slices.SortFunc(states, func(a, b dialects.RowState) int { return strings.Compare(a.Election, b.Election) })
	return states
}

// lookBeside looks at the locks of a table beside the lock table: of the rows for which condition
// is true, and of names in only, if it is not nil. Work gets the number of each and its name, and
// the other columns that were asked for with the name.
func (d *Driver) lookBeside(ctx context.Context, table, columns, condition string, only []string,
	work func(ctx context.Context, conn *sql.Conn, p *picture, rows [][]string) error,
) error {
	return d.withConn(ctx, func(conn *sql.Conn) error {
		rows, err := rowsBeside(ctx, conn, table, columns, condition, only)
		switch number(err) {
		case noSuchTable, noPrivilege: // an older version, whose users were granted only what they needed
			return nil
		}
		if err != nil || len(rows) == 0 { // none was used yet
			return err
		}
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil { // it may have begun a transaction
			return err
		}
		p, err := newPicture(ctx, conn, table)
		if err != nil {
			return err
		}
		p.column = "id"
		if p.mariadb {
			numbers := make([]int, len(rows))
			for i, row := range rows {
				numbers[i], _ = strconv.Atoi(row[0])
			}
			err = d.lookAtMariaDB(ctx, conn, p, 0, numbers)
		} else {
			err = lookAtMySQL(ctx, conn, p, false)
		}
		if err == nil {
			err = work(ctx, conn, p, rows)
		}
		return explainPrivilege(err, p.mariadb)
	})
}

// maxShownBeside bounds the rows that are looked at, on MariaDB each by trying.
const maxShownBeside = dialects.DefaultSlots

func rowsBeside(ctx context.Context, conn *sql.Conn, table, columns, condition string, only []string) (
	rows [][]string, err error,
) {
	name, _, _ := strings.Cut(columns, ",")
	if only != nil {
		names := []string{"NULL"}
		for _, text := range only {
			quoted, err := literal(dialects.Value{Text: text})
			if err != nil {
				return nil, err
			}
			names = append(names, quoted)
		}
		condition += " AND " + name + " IN (" + strings.Join(names, ", ") + ")"
	}
	return grid(ctx, conn, "SELECT id, "+columns+" FROM "+table+" WHERE "+condition+" ORDER BY id LIMIT "+
		strconv.Itoa(maxShownBeside))
}
