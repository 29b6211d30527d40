package doctor

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/identifier"
)

// Server error numbers that say what is wrong with the server's set-up.
const (
	unknownDatabase   = 1049
	unknownColumn     = 1054
	noTablePrivilege  = 1142
	noColumnPrivilege = 1143
	noSuchTable       = 1146
	noGlobalPrivilege = 1227
)

// mysqlServer is a server under examination.
type mysqlServer struct {
	config          *mysql.Config
	conn            *sql.Conn
	greeting        *greeting
	table           string // as the user spells it
	quoted          string // as SQL
	schema, name    string // of the table, without quotes
	account         string // 'user'@'host', as the server identified the user
	version         [3]int
	mariaDB         bool
	session, global map[string]string // the server's variables
}

// MySQL examines the MySQL or MariaDB server at dsn, as the user of dsn sees it. dsn has the form
// of go-sql-driver/mysql; table is the lock table as the user spells it. MySQL returns an error if
// the server cannot be reached, or does not know the user or the database. Everything else is a
// finding.
func MySQL(ctx context.Context, dsn, table string) (findings []Finding, err error) {
	m := &mysqlServer{greeting: &greeting{}, table: table}
	if m.quoted, err = identifier.Quote(table, '`', 2); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	if m.config, err = mysql.ParseDSN(dsn); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	config := m.config.Clone()
	config.DialFunc = m.greeting.dial
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1)
	m.conn, err = m.connect(ctx, db)
	if err == nil {
		defer m.conn.Close()
		err = m.introduce(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	return run(ctx, []check{
		{"version", m.ofVersion},
		{"proxy", m.proxy},
		{"row-locking", m.locking},
		{"table", m.lockTable},
		{"privileges", m.privileges},
		{"kinds", m.otherKinds},
		{"isolation", m.isolation},
		{"read-only", m.readOnly},
		{"replication", m.replication},
		{"cluster", m.cluster},
		{"timeouts", m.timeouts},
		{"deadlock-detection", m.deadlocks},
		{"durability", m.durability},
		{"status", m.status},
	}, func(err error) bool {
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
			errors.Is(err, sql.ErrConnDone)
	})
}

// connect waits no longer than the DSN allows, even if the server accepts the connection and then
// stays silent: the driver limits dialling only.
func (m *mysqlServer) connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	if m.config.Timeout == 0 {
		return db.Conn(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	conn, err := db.Conn(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("no answer within %v: %w", m.config.Timeout, bounded.Err())
	}
	return conn, err
}

// introduce asks the server for the account, the database and all variables.
func (m *mysqlServer) introduce(ctx context.Context) (err error) {
	if m.session, err = m.variables(ctx, "SHOW SESSION VARIABLES"); err != nil {
		return err
	}
	if m.global, err = m.variables(ctx, "SHOW GLOBAL VARIABLES"); err != nil {
		return err
	}
	m.identify()
	m.schema, m.name = parts(m.quoted)
	var account, database string
	row := m.conn.QueryRowContext(ctx, "SELECT CURRENT_USER(), COALESCE(DATABASE(), '')")
	if err = row.Scan(&account, &database); err != nil {
		return err
	}
	if m.schema == "" {
		m.schema = database
	}
	at := strings.LastIndexByte(account, '@')
	if at < 0 {
		return fmt.Errorf("the server says that the user is %q", account)
	}
	m.account = quoteText(account[:at]) + "@" + quoteText(account[at+1:])
	return nil
}

// identify reads the version, which also tells MySQL from MariaDB.
func (m *mysqlServer) identify() {
	m.mariaDB = strings.Contains(m.global["version"], "MariaDB")
	_, _ = fmt.Sscanf(m.global["version"], "%d.%d.%d", &m.version[0], &m.version[1], &m.version[2])
}

func (m *mysqlServer) variables(ctx context.Context, query string) (map[string]string, error) {
	values := map[string]string{}
	var name string
	var value sql.NullString
	err := m.each(ctx, query, func() { values[name] = value.String }, &name, &value)
	return values, err
}

// each scans the rows of a query, and calls row for each.
func (m *mysqlServer) each(ctx context.Context, query string, row func(), into ...any) error {
	rows, err := m.conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row()
	}
	return rows.Err()
}

// texts returns the first column of a query's rows.
func (m *mysqlServer) texts(ctx context.Context, query string) (texts []string, err error) {
	var text string
	err = m.each(ctx, query, func() { texts = append(texts, text) }, &text)
	return texts, err
}

// parts splits a quoted name. schema is empty if the name has none.
func parts(quoted string) (schema, name string) {
	inside := false
	for at, character := range quoted {
		if character == '`' {
			inside = !inside
		} else if character == '.' && !inside {
			return unquote(quoted[:at]), unquote(quoted[at+1:])
		}
	}
	return "", unquote(quoted)
}

func unquote(name string) string { return strings.ReplaceAll(name[1:len(name)-1], "``", "`") }

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// number is the server's error number, or 0 if the error does not come from a server.
func number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

func denied(err error) bool {
	return number(err) == noTablePrivilege || number(err) == noColumnPrivilege
}

func (m *mysqlServer) ofVersion(_ context.Context, r report) (fine string, err error) {
	text := m.global["version"] + " " + m.global["version_comment"]
	name, least, tested, newest := "MySQL ", [3]int{8, 0, 1}, "MySQL 9.7", [3]int{9, 8, 0}
	if m.mariaDB {
		name, least, tested, newest = "", [3]int{10, 6, 0}, "MariaDB 10.11 and 11.8", [3]int{11, 9, 0}
	}
	found := name + text + "; txlock is tested on " + tested
	switch {
	case before(m.version, least):
		r.fails(found, "SKIP LOCKED and NOWAIT, which every lock is made of, are not there",
			advice(fmt.Sprintf("upgrade the server to %d.%d.%d or later", least[0], least[1], least[2])))
	case !before(m.version, newest):
		r.note(found, "it is newer than any server that this txlock was tested on", Fix{})
	}
	return found, nil
}

func before(version, other [3]int) bool { return slices.Compare(version[:], other[:]) < 0 }

// locking has the library prove that the server locks, on connections like a program's.
func (m *mysqlServer) locking(ctx context.Context, r report) (fine string, err error) {
	connector, err := mysql.NewConnector(m.config.Clone())
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	because := ""
	if err = txlock.New(txmysql.New(db), txlock.WithTable(m.table)).Check(ctx); denied(err) {
		because = mayNotLock
	}
	r.proof(err, because)
	return "", nil
}
