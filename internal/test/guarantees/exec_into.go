package guarantees

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// ExecPassesOn shows that a statement behind an Into has for its argument what that was filled
// with.
func ExecPassesOn[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	for i, exec := range []func(...txlock.Statement) ([]int64, error){
		func(list ...txlock.Statement) ([]int64, error) { return m.Exec(background, list...) },
		func(list ...txlock.Statement) ([]int64, error) { return m.TryExec(background, list...) },
		func(list ...txlock.Statement) (affected []int64, err error) {
			err = m.Do(background, func(ctx context.Context, _ Tx) (err error) {
				affected, err = m.Exec(ctx, list...)
				return err
			})
			return affected, err
		},
	} {
		id, note := 0, ""
		parent := s.statement("SELECT id + @ FROM stock WHERE id = 2", 10*(i+1))
		parent.Into = []any{&id}
		child := s.statement("INSERT INTO stock VALUES (@, 1, @)", &id, fmt.Sprint("child ", i))
		read := s.statement("SELECT note FROM stock WHERE id = @", &id)
		read.Into = []any{&note}
		mark := s.statement("UPDATE stock SET n = 77 WHERE note = @", &note)
		mark.Rows = 1
		affected, err := exec(s.take(1), parent, child, read, mark)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 1, 1, 1, 1}, affected)
		require.Equal(t, 10*(i+1)+2, id)
		require.Equal(t, 77, s.Total(t, fmt.Sprintf("SELECT n FROM %s WHERE id = %d", s.table, id)))

		mark.Rows = 3
		parent.Args = []any{100}
		_, err = exec(s.take(1), parent, child, read, mark)
		require.ErrorIs(t, err, txlock.ErrRows)
		var of *dialects.StatementError
		require.ErrorAs(t, err, &of)
		require.Equal(t, 5, of.Number)
		require.Equal(t, 9-i, s.left(t))
		require.Equal(t, 3+i, s.count(t))
	}
	s.Free(t, s.key)
}
