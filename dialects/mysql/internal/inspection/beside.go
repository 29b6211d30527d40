package inspection

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// maxBeside bounds the rows that are looked at, on MariaDB each by trying.
const maxBeside = dialects.DefaultSlots

// readBeside reads which rows of a table beside the lock table to look at: those for which the
// condition is true, and of the names that were asked for. The target is empty if there are none.
func readBeside(ctx context.Context, conn *sql.Conn, of dialects.Inspection, suffix, further, condition string) (
	at target, err error,
) {
	table, err := sqltext.Beside(of.Table.Name, suffix)
	if err != nil {
		return at, err
	}
	if of.Names != nil {
		names := []string{"NULL"}
		for _, name := range of.Names {
			quoted, err := sqltext.Literal(dialects.Value{Text: name})
			if err != nil {
				return at, err
			}
			names = append(names, quoted)
		}
		condition += " AND hash IN (" + strings.Join(names, ", ") + ")"
	}
	lines, err := server.Grid(ctx, conn, fmt.Sprintf("SELECT id, hash, COALESCE(name, '')%s FROM %s WHERE %s "+
		"ORDER BY id LIMIT %d", further, table, condition, maxBeside))
	switch server.Number(err) {
	case server.NoSuchTable, server.NoPrivilege: // an older version, whose users were granted only what they needed
		return at, nil
	case server.UnknownColumn: // version 0.1 made it
		return at, server.Ours(err, table)
	}
	if err != nil || len(lines) == 0 { // none was used yet
		return at, err
	}
	at = target{table: table, column: "id", only: make([]int, len(lines)), beside: lines}
	for i, line := range lines {
		at.only[i], _ = strconv.Atoi(line[0])
	}
	_, err = conn.ExecContext(ctx, "ROLLBACK") // it may have begun a transaction
	return at, err
}

// elections are the seats that are held or awaited.
func (p *picture) elections() (states []dialects.RowState) {
	seats := map[string]dialects.Named{}
	for _, line := range p.beside {
		seats[line[0]] = dialects.Named{Kind: dialects.KindElection, Hash: line[1], Name: line[2]}
	}
	for _, state := range p.states() {
		election, known := seats[state.Value]
		if known { // else it is the record, or the office
			state.Column, state.Named = p.column, election
			states = append(states, state)
		}
	}
	return states
}

// semaphores are those of which permits are held or awaited.
func (p *picture) semaphores() (states []dialects.RowState) {
	held, queues := map[string]dialects.Party{}, map[string][]dialects.Party{} // by the number of the row
	for _, state := range p.states() {
		switch {
		case state.Holder != nil:
			held[state.Value] = *state.Holder
		case len(state.Readers)+state.Sharing > 0: // somebody who does not use txlock
			held[state.Value] = append(state.Readers, dialects.Party{})[0]
		}
		if queues[state.Value] = state.Waiters; state.Holder != nil { // the first, which looks for a permit
			queues[state.Value] = append([]dialects.Party{*state.Holder}, state.Waiters...)
		}
	}
	byHash := map[string]*dialects.RowState{}
	for _, line := range p.beside {
		number, hash, name := line[0], line[1], line[2]
		s := byHash[hash]
		if s == nil {
			s = &dialects.RowState{Table: p.table, Named: dialects.Named{Kind: dialects.KindSemaphore, Hash: hash}}
			byHash[hash] = s
		}
		s.Named.Name = cmp.Or(s.Named.Name, name)
		permit, _ := strconv.Atoi(line[3])
		if permit == locktable.QueuePermit {
			s.Waiters = queues[number]
		} else if holder, taken := held[number]; taken {
			holder.Permit = permit
			s.Permits = append(s.Permits, holder)
		}
	}
	for _, s := range byHash {
		if len(s.Permits)+len(s.Waiters) > 0 {
			slices.SortFunc(s.Permits, func(a, b dialects.Party) int { return cmp.Compare(a.Permit, b.Permit) })
			states = append(states, *s)
		}
	}
	return states
}
