package wrapped

import (
	"context"
	"database/sql/driver"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

type (
	innermost struct {
		plain
		c net.Conn
	}
	plain interface {
		driver.Conn
		driver.ExecerContext
	}
	raw       struct{ below driver.Conn }
	unwrap    struct{ below driver.Conn }
	traced    struct{ below driver.Conn }
	embedding struct{ driver.Conn }
	hiding    struct {
		driver.Conn
		parent driver.Conn
	}
	twice struct{ one, other net.Conn }
)

func (r raw) Raw() driver.Conn            { return r.below }
func (u unwrap) Unwrap() driver.Conn      { return u.below }
func (t traced) WrappedConn() driver.Conn { return t.below }

func (raw) Prepare(string) (driver.Stmt, error)    { return nil, nil }
func (raw) Close() error                           { return nil }
func (raw) Begin() (driver.Tx, error)              { return nil, nil }
func (unwrap) Prepare(string) (driver.Stmt, error) { return nil, nil }
func (unwrap) Close() error                        { return nil }
func (unwrap) Begin() (driver.Tx, error)           { return nil, nil }
func (traced) Prepare(string) (driver.Stmt, error) { return nil, nil }
func (traced) Close() error                        { return nil }
func (traced) Begin() (driver.Tx, error)           { return nil, nil }

func TestInnermost(t *testing.T) {
	t.Parallel()
	conn := &innermost{}
	for _, wrapper := range []any{
		conn,
		raw{conn},
		&raw{conn},
		unwrap{conn},
		traced{conn},
		embedding{conn},
		&embedding{conn},
		embedding{raw{&embedding{unwrap{traced{conn}}}}},
	} {
		require.Same(t, conn, Innermost(wrapper), "%T", wrapper)
	}
	ambiguous := hiding{conn, conn}
	require.Equal(t, ambiguous, Innermost(ambiguous), "of two nobody knows which one it is")
	require.Equal(t, raw{}, Innermost(raw{}))
	require.Nil(t, Innermost(nil))
	endless := &embedding{}
	endless.Conn = endless
	require.Same(t, endless, Innermost(endless))
}

func TestFields(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	conn := &innermost{c: ours}
	require.Same(t, ours, Socket(conn))
	require.Same(t, ours, Field[net.Conn](conn, "c"))
	require.Nil(t, Field[net.Conn](conn, "plain"))
	require.Nil(t, Field[net.Conn](conn, "no"))
	require.Nil(t, Socket(&twice{ours, theirs}))
	require.Nil(t, Socket(7))
	require.Nil(t, Socket((*innermost)(nil)))
}

// What a connection cannot do, database/sql is told to do in another way.
func TestStatements(t *testing.T) {
	t.Parallel()
	s := Statements{Conn: raw{}}
	_, err := s.ExecContext(context.Background(), "", nil)
	require.ErrorIs(t, err, driver.ErrSkip)
	_, err = s.QueryContext(context.Background(), "", nil)
	require.ErrorIs(t, err, driver.ErrSkip)
	require.ErrorIs(t, s.CheckNamedValue(nil), driver.ErrSkip)
	_, err = s.PrepareContext(context.Background(), "")
	require.NoError(t, err)
}
