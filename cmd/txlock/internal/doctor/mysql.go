package doctor

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock"
	txmysql "github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/identifier"
)

// Server error numbers that say what is wrong with the server's set-up.
const (
	tooManySessions   = 1040
	unknownDatabase   = 1049
	unknownColumn     = 1054
	noTablePrivilege  = 1142
	noColumnPrivilege = 1143
	noSuchTable       = 1146
	tooManyOfUser     = 1203 // the limit is max_user_connections
	userLimit         = 1226 // the limit comes from GRANT or CREATE USER
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
	long            time.Duration     // after which a transaction holds back purge for long
}

// MySQL examines the MySQL or MariaDB server at dsn, as the user of dsn sees it. dsn has the form
// of go-sql-driver/mysql; table is the lock table as the user spells it. MySQL returns an error if
// the server cannot be reached, or does not know the user or the database. Everything else is a
// finding.
func MySQL(ctx context.Context, dsn, table string) ([]Finding, error) {
	return mysqlWith(ctx, dsn, table, longAfter)
}

func mysqlWith(ctx context.Context, dsn, table string, long time.Duration) ([]Finding, error) {
	quoted, err := identifier.Quote(table, '`', 2)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	m := &mysqlServer{config: config, greeting: &greeting{}, table: table, quoted: quoted, long: long}
	db, err := m.open()
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	defer db.Close()
	m.conn, err = m.connect(ctx, db)
	if refused(err) {
		return one(crowded(err, m.moreSessions(err))), nil
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	defer m.conn.Close()
	if err := m.introduce(ctx); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	return run(ctx, m.checks(), func(err error) bool {
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
			errors.Is(err, sql.ErrConnDone)
	})
}

// open returns a pool for the one connection whose greeting is kept.
func (m *mysqlServer) open() (*sql.DB, error) {
	config := m.config.Clone()
	config.DialFunc = m.greeting.dial
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return db, nil
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

func (m *mysqlServer) checks() []check {
	return []check{
		{"version", m.lookAtVersion},
		{"service", m.lookAtService},
		{"proxy", m.lookAtProxy},
		{"row-locking", m.lookAtLocking},
		{"table", m.lookAtTable},
		{"privileges", m.lookAtPrivileges},
		{"isolation", m.lookAtIsolation},
		{"binlog-format", m.lookAtBinlog},
		{"read-only", m.lookAtReadOnly},
		{"replication", m.lookAtReplication},
		{"cluster", m.lookAtCluster},
		{"members", m.lookAtMembers},
		{"timeouts", m.lookAtTimeouts},
		{"deadlock-detection", m.lookAtDeadlocks},
		{"tcp-keepalives", m.lookAtKeepalives},
		{"durability", m.lookAtDurability},
		{"purge", m.lookAtPurge},
		{"connections", m.lookAtConnections},
		{"status", m.lookAtStatus},
		{"clock", m.lookAtClock},
	}
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
	rows, err := m.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[name] = value.String
	}
	return values, rows.Err()
}

// parts splits a quoted name. schema is empty if the name has none.
func parts(quoted string) (schema, name string) {
	var unquoted []string
	for rest := quoted; rest != ""; {
		var part strings.Builder
		rest = rest[1:]
		for {
			text, after, _ := strings.Cut(rest, "`")
			part.WriteString(text)
			rest = after
			if !strings.HasPrefix(rest, "`") {
				break
			}
			part.WriteByte('`')
			rest = rest[1:]
		}
		unquoted = append(unquoted, part.String())
		rest = strings.TrimPrefix(rest, ".")
	}
	if len(unquoted) == 1 {
		return "", unquoted[0]
	}
	return unquoted[0], unquoted[1]
}

func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// number is the server's error number, or 0 if the error does not come from a server.
func number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// refused tells whether the server has no connection left for this user.
func refused(err error) bool {
	return number(err) == tooManySessions || number(err) == tooManyOfUser || number(err) == userLimit
}

func denied(err error) bool {
	return number(err) == noTablePrivilege || number(err) == noColumnPrivilege
}

func (m *mysqlServer) lookAtVersion(context.Context) ([]Finding, error) {
	text := m.global["version"] + " " + m.global["version_comment"]
	name, least, tested, newest := "MySQL ", [3]int{8, 0, 1}, "MySQL 9.7", [3]int{9, 8, 0}
	if m.mariaDB {
		name, least, tested, newest = "", [3]int{10, 6, 0}, "MariaDB 10.11 and 11.8", [3]int{11, 9, 0}
	}
	finding := Finding{Severity: OK, Found: name + text + "; txlock is tested on " + tested}
	switch {
	case before(m.version, least):
		finding.Severity, finding.Why = Failure, "SKIP LOCKED and NOWAIT, which every lock is made of, are not there"
		finding.Fix = advice(fmt.Sprintf("upgrade the server to %d.%d.%d or later", least[0], least[1], least[2]))
	case strings.Contains(text, "TiDB") || strings.Contains(text, "Vitess"):
		finding.Severity, finding.Why = Note, "it is not MySQL itself, and what txlock rests on was tried on MySQL "+
			"and MariaDB only"
	case !before(m.version, newest):
		finding.Severity, finding.Why = Note, "it is newer than any server that this txlock was tested on"
	}
	return one(finding), nil
}

func before(version, other [3]int) bool {
	for i := range version {
		if version[i] != other[i] {
			return version[i] < other[i]
		}
	}
	return false
}

// lookAtLocking has the library prove that the server locks, on connections like a program's.
func (m *mysqlServer) lookAtLocking(ctx context.Context) ([]Finding, error) {
	connector, err := mysql.NewConnector(m.config.Clone())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = txlock.New(txmysql.New(db), txlock.WithTable(m.table)).Check(ctx)
	switch {
	case refused(err):
		return []Finding{proof(err, fewSessions), crowded(err, m.moreSessions(err))}, nil
	case denied(err):
		return one(proof(err, mayNotLock)), nil
	}
	return one(proof(err, "")), nil
}

func (m *mysqlServer) lookAtClock(ctx context.Context) ([]Finding, error) {
	var text string
	asked := time.Now()
	if err := m.conn.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) AS CHAR)").Scan(&text); err != nil {
		return nil, err
	}
	answered := time.Now()
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, err
	}
	return one(clock(asked, answered, time.UnixMicro(int64(seconds*1e6)))), nil
}
