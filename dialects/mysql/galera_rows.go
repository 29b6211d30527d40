package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// lockRows locks rows of a caller's table on Galera. A row of theirs cannot be changed for the sake
// of a lock, so the cluster certifies the slots of the rows' primary keys. The slots come first:
// whoever waited with the row locked on its own node would be rolled back there when the holder on
// another node commits a change of the row.
//
// The keys are read before that, and once more behind the rows' locks, by which they cannot change.
func (d *Driver) lockRows(ctx context.Context, at place, request dialects.Request, front []string) (
	got dialects.Grant, err error,
) {
	table, err := request.LockTable(ctx)
	if err != nil {
		return got, err
	}
	request.LockTable = nil
	slotsOf := d.slotsOfRows
	if at.role == foreign { // whose snapshot would be older than the lock
		slotsOf = d.slotsElsewhere
	}
	slots, err := slotsOf(ctx, at, request, table.Slots)
	if err != nil {
		return got, err
	}
	named := request
	named.Table, named.Column, named.Values = table.Name, "slot", slots
	named.Slots, named.Ours = table.Slots, true
	got, err = d.lock(ctx, at, named, front)
	if errors.Is(err, missing.ErrRows) {
		var existing []string
		if request.Try { // they are held; else they are gone
			existing = textsOf(named)
		}
		err = missing.Rows(named, existing)
	}
	if err != nil {
		return got, err
	}
	request.Fence = ""
	if _, err = d.lock(ctx, at, request, nil); errors.Is(err, missing.ErrRows) {
		err = missing.Rows(request, valuesOf(request, textsOf(request)))
	}
	if err != nil {
		return got, err
	}
	again, err := d.slotsOfRows(ctx, at, request, table.Slots)
	if err == nil && !slices.Equal(slots, again) {
		err = errOvertaken
	}
	return got, err
}

// slotsOfRows are the slots of the primary keys of the rows that request names, each once, in
// ascending order. The texts of the keys are the server's, so they are the same however a caller
// spells a value, and by whichever column.
func (d *Driver) slotsOfRows(ctx context.Context, at place, request dialects.Request, n int) ([]dialects.Value, error) {
	table, err := sqltext.QuoteTable(request.Table)
	if err != nil {
		return nil, err
	}
	selects, err := selectsOf(request, "", "")
	if err != nil {
		return nil, err
	}
	columns, err := server.Grid(ctx, at, "SHOW KEYS FROM "+table+" WHERE Key_name = 'PRIMARY'")
	if err != nil {
		return nil, server.Classify(err, request)
	}
	if len(columns) == 0 {
		return nil, dialects.RefusedError{Err: fmt.Errorf("%w: on Galera, rows are known by their primary key, and "+
			"%.100s has none", dialects.ErrUnsafeEngine, request.Table)}
	}
	key := "CONCAT_WS(','"
	for _, column := range columns {
		key += ", HEX(`" + strings.ReplaceAll(column[4], "`", "``") + "`)" // 4: Column_name
	}
	between := key + "), DATABASE(), "
	lines, err := server.Grid(ctx, at, "(SELECT "+between+strings.Join(selects, ") UNION ALL (SELECT "+between)+")")
	if err != nil {
		return nil, server.Classify(err, request)
	}
	var existing []string
	var slots []int
	for _, line := range lines {
		existing = append(existing, line[2])
		name := table
		if !strings.Contains(table, "`.`") {
			name = "`" + strings.ReplaceAll(line[1], "`", "``") + "`." + table
		}
		slots = append(slots, dialects.SlotOf(strings.ToLower(name)+" "+line[0], n))
	}
	if existing = valuesOf(request, existing); len(existing) < len(request.Values) {
		return nil, missing.Rows(request, existing)
	}
	slices.Sort(slots)
	var values []dialects.Value
	for _, slot := range slices.Compact(slots) {
		values = append(values, dialects.Value{Text: strconv.Itoa(slot)})
	}
	return values, nil
}

// slotsElsewhere is slotsOfRows on another connection. It does not see what the transaction of at
// has not committed.
func (d *Driver) slotsElsewhere(ctx context.Context, at place, request dialects.Request, n int) (
	slots []dialects.Value, err error,
) {
	brief, cancel := context.WithTimeout(ctx, fencing.SecondConn)
	defer cancel()
	err = d.pool.With(brief, func(conn *sql.Conn) (err error) {
		at.Querier = conn
		slots, err = d.slotsOfRows(brief, at, request, n)
		return err
	})
	return slots, err
}
