package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
)

// kill ends the statement that carries tag, from another connection. The transaction goes on. The
// client library itself would close the socket, and leave the waiter in the server's queue.
func (d *Driver) kill(ctx context.Context, tag string, patience time.Duration) error {
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := d.control.Conn(brief)
	if err != nil {
		return interrupt.ErrNoConnection
	}
	defer conn.Close()
	thread, err := threadOf(ctx, conn, tag)
	if err != nil || thread == "" {
		return err
	}
	_, err = conn.ExecContext(ctx, "KILL QUERY "+thread)
	return err
}

// threadOf finds the thread whose statement carries tag. Every user sees at least its own threads.
func threadOf(ctx context.Context, conn *sql.Conn, tag string) (string, error) {
	rows, err := conn.QueryContext(ctx, "SHOW FULL PROCESSLIST")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return "", err
	}
	row := make([]any, len(names))
	var id, info sql.NullString
	for i, name := range names {
		switch strings.ToLower(name) {
		case "id":
			row[i] = &id
		case "info":
			row[i] = &info
		default:
			row[i] = new(sql.RawBytes)
		}
	}
	thread := ""
	for rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return "", err
		}
		if strings.Contains(info.String, tag) {
			thread = id.String
		}
	}
	return thread, rows.Err()
}
