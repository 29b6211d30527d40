package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// On Galera, a node counts tokens in a row of its own, in the table of runs, whose other rows have
// positive epochs. UUID_SHORT() would count on one node alone. A count is larger than those of all
// nodes, and no other node's. It is committed on another connection while the session has the lock,
// because the transaction of a Lock is rolled back. Behind that the session sends another fragment:
// so it had the lock when the count was committed, and whoever has it next has a node that has
// applied the count. Who has lost the lock meanwhile has burnt a number.
//
// The epoch, one for all nodes, keeps tokens above those of a server that was none before. Its row
// has the server 0, and a start that is good for no server with counts of its own.

// certifyAndDraw makes the lock of the rows of request one of the cluster, and draws tokens from
// fence, unless that is empty.
func (d *Driver) certifyAndDraw(ctx context.Context, at place, request dialects.Request, fence string) (
	token int64, err error,
) {
	if fence == "" {
		return 0, d.certifySoon(ctx, at, request)
	}
	if err := d.certify(ctx, at, request); err != nil {
		return 0, err
	}
	f, err := fenceOf(fence)
	if err != nil {
		return 0, err
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing.SecondConn)
	defer cancel()
	err = d.pool.With(brief, func(conn *sql.Conn) error {
		return client.Setting(brief, conn, func() (err error) {
			for tries := 1; ; tries++ {
				token, err = f.commitCount(brief, conn)
				if !server.IsDeadlock(err) || tries == 5 {
					return err
				}
				breather()
			}
		}, "autocommit", "0")
	})
	if err != nil {
		return 0, f.explain(fence, err)
	}
	return token, d.certifySoon(ctx, at, request)
}

// commitCount commits a count, and returns its token. The row of the node is locked before the
// others are read. Where two nodes have the same offset, they write one row,
// and one of them has to do so again.
func (f fence) commitCount(ctx context.Context, conn *sql.Conn) (int64, error) {
	_, err := conn.ExecContext(ctx, "INSERT INTO "+f.runs+" (server, epoch, start) "+
		"VALUES (0, -@@auto_increment_offset, 1) ON DUPLICATE KEY UPDATE start = start + 1")
	if err != nil {
		return 0, err
	}
	var epoch, id, last, offset, step uint64
	err = conn.QueryRowContext(ctx, "SELECT epoch, server, (SELECT MAX(start) FROM "+f.runs+" WHERE epoch < 0), "+
		"@@auto_increment_offset, @@auto_increment_increment FROM "+f.runs+" WHERE epoch > 0 ORDER BY epoch DESC "+
		"LIMIT 1").Scan(&epoch, &id, &last, &offset, &step)
	if errors.Is(err, sql.ErrNoRows) || err == nil && id != 0 {
		err = fencing.ErrNoRun
	}
	if err != nil {
		return 0, err
	}
	last++
	last += (step + offset%step - last%step) % step // where this node's numbers are
	_, err = conn.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET start = %d WHERE epoch = -@@auto_increment_offset",
		f.runs, last))
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		return 0, err
	}
	return fencing.Token(epoch, last)
}

// numberCluster begins an epoch, unless the last one is of a cluster. Two that are begun at once do
// no harm: the later one counts.
func (f fence) numberCluster(ctx context.Context, conn *sql.Conn) error {
	last, err := server.Column(ctx, conn, "SELECT server FROM "+f.runs+" WHERE epoch > 0 ORDER BY epoch DESC LIMIT 1")
	if err == nil && (len(last) == 0 || last[0] != "0") {
		_, err = f.newEpoch(ctx, conn, "0")
	}
	return err
}
