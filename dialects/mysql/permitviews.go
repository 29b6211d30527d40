package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// permitRow is a row of the table of permits.
type permitRow struct {
	id, permit int
	semaphore  string
	name       string
}

func (d *Driver) inspectPermits(ctx context.Context, table string, only []string) (
	states []dialects.RowState, err error,
) {
	permits, err := sqltext.PermitsOf(table)
	if err != nil {
		return nil, err
	}
	err = d.lookBeside(ctx, permits, "hash, permit, COALESCE(name, '')", "permit >= 0", only,
		func(ctx context.Context, conn *sql.Conn, p *picture, lines [][]string) (err error) {
			rows := make([]permitRow, len(lines))
			for i, line := range lines {
				rows[i].semaphore, rows[i].name = line[1], line[3]
				rows[i].id, _ = strconv.Atoi(line[0])
				rows[i].permit, _ = strconv.Atoi(line[2])
			}
			states, err = p.semaphores(ctx, conn, table, permits, rows)
			return err
		})
	return states, err
}

// lookBeside looks at the locks of a table beside the lock table: of the rows for which condition
// is true, and of names in only, if it is not nil. Work gets the number of each and its name, and
// the other columns that were asked for with the name.
func (d *Driver) lookBeside(ctx context.Context, table, columns, condition string, only []string,
	work func(ctx context.Context, conn *sql.Conn, p *picture, rows [][]string) error,
) error {
	return d.withConn(ctx, func(conn *sql.Conn) error {
		rows, err := rowsBeside(ctx, conn, table, columns, condition, only)
		switch server.Number(err) {
		case server.NoSuchTable, server.NoPrivilege: // an older version, whose users were granted only what they needed
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
			quoted, err := sqltext.Literal(dialects.Value{Text: text})
			if err != nil {
				return nil, err
			}
			names = append(names, quoted)
		}
		condition += " AND " + name + " IN (" + strings.Join(names, ", ") + ")"
	}
	return server.Grid(ctx, conn, "SELECT id, "+columns+" FROM "+table+" WHERE "+condition+" ORDER BY id LIMIT "+
		strconv.Itoa(maxShownBeside))
}

// semaphores puts the picture together.
func (p *picture) semaphores(ctx context.Context, conn *sql.Conn, table, permits string, rows []permitRow) (
	states []dialects.RowState, err error,
) {
	bySemaphore := map[string]*dialects.RowState{}
	byID, queues, names := map[string]permitRow{}, map[string]string{}, map[string]string{}
	at := func(semaphore string) *dialects.RowState {
		if bySemaphore[semaphore] == nil {
			bySemaphore[semaphore] = &dialects.RowState{
				Kind: dialects.KindSemaphore, Table: table,
				Named: dialects.Named{Hash: semaphore, Name: names[semaphore]},
			}
		}
		return bySemaphore[semaphore]
	}
	for _, row := range rows {
		byID[strconv.Itoa(row.id)] = row
		names[row.semaphore] = cmp.Or(names[row.semaphore], row.name)
		if row.permit == 0 {
			queues[row.semaphore] = sqltext.QueueName(p.database, permits, strconv.Itoa(row.id))
		}
	}
	for _, lock := range p.locks {
		row, known := byID[lock.value]
		if lock.table == p.slots() && lock.index == primary && known && lock.party != nil && !lock.waiting {
			holder := *lock.party
			holder.Permit, holder.Transaction = row.permit, lock.transaction
			at(row.semaphore).Permits = append(at(row.semaphore).Permits, holder)
		}
	}
	asked := map[string]string{} // semaphores by the name of the queue
	for semaphore, queue := range queues {
		asked[queue] = semaphore
	}
	for _, party := range p.people {
		if _, rest, waits := strings.Cut(party.Statement, "GET_LOCK('"); waits && !party.Idle {
			queue, _, _ := strings.Cut(rest, "'")
			if semaphore, known := asked[queue]; known {
				at(semaphore).Waiters = append(at(semaphore).Waiters, *party)
			}
		}
	}
	for semaphore, state := range bySemaphore {
		if err := p.headFirst(ctx, conn, queues[semaphore], state); err != nil {
			return nil, err
		}
		slices.SortFunc(state.Permits, func(a, b dialects.Party) int {
			return cmp.Or(cmp.Compare(a.Permit, b.Permit), strings.Compare(a.Session, b.Session))
		})
		state.Permits = slices.CompactFunc(state.Permits, func(a, b dialects.Party) bool {
			return a.Permit == b.Permit
		})
		states = append(states, *state)
	}
	return states, nil
}

// headFirst sorts the waiters by the length of their waits, and puts the head of the queue first.
func (p *picture) headFirst(ctx context.Context, conn *sql.Conn, queue string, state *dialects.RowState) error {
	slices.SortFunc(state.Waiters, func(a, b dialects.Party) int {
		return cmp.Or(cmp.Compare(b.For, a.For), strings.Compare(a.Session, b.Session))
	})
	if queue == "" {
		return nil
	}
	user, err := server.Grid(ctx, conn, "SELECT IS_USED_LOCK('"+queue+"')")
	if err != nil {
		return err
	}
	head := p.people[user[0][0]]
	isHead := func(party dialects.Party) bool { return party.Session == user[0][0] }
	if head != nil {
		state.Waiters = append([]dialects.Party{*head}, slices.DeleteFunc(state.Waiters, isHead)...)
	}
	return nil
}
