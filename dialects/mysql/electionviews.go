package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

func (d *Driver) inspectElections(ctx context.Context, table string, only []string) (
	states []dialects.RowState, err error,
) {
	leaders, err := sqltext.LeadersOf(table)
	if err != nil {
		return nil, err
	}
	err = d.lookBeside(ctx, leaders, "hash, COALESCE(name, '')", "part = 'seat'", only,
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
		if state.Holder != nil || len(state.Waiters) > 0 {
			state.Kind, state.Named = dialects.KindElection, dialects.Named{Hash: election, Name: row[2]}
			states = append(states, state)
		}
	}
	slices.SortFunc(states, func(a, b dialects.RowState) int { return strings.Compare(a.Named.Hash, b.Named.Hash) })
	return states
}
