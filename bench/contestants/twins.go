package contestants

import (
	"slices"

	"github.com/txlock/txlock/bench/contest"
)

// The statements of postgres.
var (
	begin   = statement{sql: "begin isolation level read committed read write"}
	level   = statement{sql: "set transaction isolation level read committed, read write"}
	settles = statement{"select " + ofSession + ", " + ofWait("$4", "$5"), append(ofLock, "", "60000ms", "false")}
	works   = statement{settles.sql, append(ofLock, mark, "60000ms", "false")}
	row     = statement{"select n, " + restored("lock_timeout") + slotRow, []any{"SLOT"}}
	certain = statement{"select " + oneRow + ", " + restored("lock_timeout") + slotRow, []any{"SLOT"}}
	idle    = statement{sql: "set local txlock.idle = ''"}
	proof   = statement{"select 1 / (" + setting("txlock.held', true") + " is not distinct from $1)::int", markOnly}
	counts  = statement{sql: count}

	point = statement{sql: "savepoint txlock_wait"}
	guest = statement{
		"select case when " + setting("transaction_isolation'") + " not in ('read committed', 'read " +
			"uncommitted') or pg_catalog.pg_is_in_recovery() then " + verdict + " end, " + ofWait("$2", "$3") + ", " +
			kept("application_name", shown) + ", " + kept("client_connection_check_interval", "'500ms'"),
		[]any{"#1 [key]", "60000ms", "false"},
	}
	guestRow = statement{"select " + oneRow + ", " + restored("lock_timeout") + ", " + restored("application_name") +
		", " + restored("client_connection_check_interval") + slotRow, []any{"SLOT"}}

	markOnly  = []any{mark}
	ofLock    = []any{"#1 [key]", "30000ms"}[:2:2]
	ofSession = set("application_name", shown) + ", " + set("idle_in_transaction_session_timeout", "$2") + ", " +
		set("tcp_user_timeout", "$2") + ", " + set("client_connection_check_interval", "'500ms'") + ", " +
		set("txlock.held", "$3")
	shown = "pg_catalog.left(pg_catalog.left(" + setting("application_name'") + ", 20) || $1::pg_catalog.text, 50)"
	// slotRow passes the queue lock, and then locks the row of the slot.
	slotRow = " from (select pg_catalog.count(*) from (select 1 from " + slotTable + " where slot = $1" + whereSlot +
		" and (select pg_catalog.pg_advisory_xact_lock('" + slotTable + "'::pg_catalog.regclass::pg_catalog.oid" +
		"::int, $1::int) is not null) for update) rows (locked)) counted (n)"
	oneRow = "case when n < 1 then " + verdict + " else n end"
)

const (
	mark    = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" // as long as txlock's
	verdict = "pg_catalog.concat('txlock: ', 'what is wrong')::int"
)

func setting(name string) string { return "pg_catalog.current_setting('" + name + ")" }

func set(name, value string) string {
	return "pg_catalog.set_config('" + name + "', " + value + ", true)"
}

func kept(name, value string) string {
	return set("txlock."+name, setting(name+"'")) + ", " + set(name, value)
}

func restored(name string) string { return set(name, setting("txlock."+name+"'")) }

func ofWait(limit, bounded string) string {
	own := setting("lock_timeout'")
	return kept("lock_timeout", "case when "+bounded+"::boolean or "+own+" = '0' or "+own+"::interval > "+limit+
		"::pg_catalog.text::interval then "+limit+" else "+own+" end")
}

// The statements of mysql.
const (
	comment  = "SELECT /* txlock ABCDEFGHIJKLMNOPQRSTUVWXYZ-1 #1 [key] */ slot "
	fromSlot = "FROM " + slotTable + " WHERE slot = SLOT AND slots = 65536 FOR UPDATE"
	patient  = "/*M! SET STATEMENT innodb_lock_wait_timeout=100000000 FOR */ "

	isolation = "/*!80001 @@session.transaction_isolation */ /*M! @@session.tx_isolation */"
	guards    = "SET @txlock_autocommit = @@autocommit, @txlock_wait_timeout = @@wait_timeout, " +
		"@txlock_net_write_timeout = @@net_write_timeout, @txlock_isolation = " + isolation +
		", autocommit = 0, autocommit = 1, autocommit = 0, " + isolation + " = 'READ-COMMITTED', wait_timeout = 30, " +
		"net_write_timeout = 30"
	restores = "SET autocommit = 1, autocommit = @txlock_autocommit, wait_timeout = @txlock_wait_timeout, " +
		"net_write_timeout = @txlock_net_write_timeout, " + isolation + " = @txlock_isolation, @txlock_autocommit = " +
		"NULL, @txlock_wait_timeout = NULL, @txlock_net_write_timeout = NULL, @txlock_isolation = NULL"
	whoAmI = "SELECT ID, HOST FROM /*!80022 performance_schema.processlist */ /*M! information_schema.PROCESSLIST */ " +
		"WHERE ID = CONNECTION_ID()"
	readOnly = "/*!80001 @@transaction_read_only */ /*M! @@tx_read_only */"
	isBegun  = "SET /* txlock  */ " + readOnly + " = " + readOnly
)

// texts are flights of one statement each.
func texts(all ...string) (flights []flight) {
	for _, text := range all {
		flights = append(flights, flight{{sql: text}})
	}
	return flights
}

var ofMySQLOpen = map[use]exchange{
	useLock: {texts(comment + "INTO @txlock " + fromSlot), texts("ROLLBACK")},
	useDo: {
		texts("SAVEPOINT txlock; " + comment + "INTO @txlock " + fromSlot), texts("RELEASE SAVEPOINT txlock; COMMIT"),
	},
	useExec: {before: texts(comment + fromSlot + "; SET @txlock = IF(FOUND_ROWS() >= 1, 0, (SELECT 1 UNION ALL " +
		"SELECT 2)); " + count + "; SELECT ROW_COUNT(); COMMIT")},
}

// Begin, commit and rollback, in small letters, are what database/sql sends.
var ofMySQLNew = map[use]exchange{
	useLock: {texts(guards, patient+comment+fromSlot), texts(restores)},
	useDo: {
		texts(whoAmI, guards, "begin", "SAVEPOINT txlock", patient+comment+fromSlot),
		texts("RELEASE SAVEPOINT txlock", restores, "rollback"),
	},
	useLockTx: {texts("begin", isBegun, comment+fromSlot), texts("commit")},
}

var twins = []twin{
	{contest.PostgreSQL, "pgx.Batch", []string{"postgres.Open", "postgres.New"}, openPGX, map[use]exchange{
		useLock: {[]flight{{begin, settles, row, idle}}, texts("rollback")},
		useDo:   {[]flight{{begin, works, row}}, []flight{{proof, {sql: "commit"}}}},
		useExec: {before: []flight{{begin, works, certain, counts, {sql: "commit"}}}},
		useLockTx: {
			slices.Concat(texts("begin"), []flight{{point, guest, guestRow, {sql: "release txlock_wait"}}}),
			texts("commit"),
		},
	}},
	{contest.PostgreSQL, "database/sql on PostgreSQL", []string{"postgres.NewSQL"}, openSQL, map[use]exchange{
		useLock: {slices.Concat(texts("begin"), []flight{{level, settles, row, idle}}), texts("rollback")},
		useDo:   {slices.Concat(texts("begin"), []flight{{level, works, row}}), []flight{{proof}, {{sql: "commit"}}}},
		useLockTx: {
			texts("begin", point.sql, guest.literal(), guestRow.literal(), "release txlock_wait"), texts("commit"),
		},
	}},
	{contest.MySQL, "one query on MySQL", []string{"mysql.Open"}, openQueries, ofMySQLOpen},
	{contest.MySQL, "database/sql on MySQL", []string{"mysql.New"}, openSQL, ofMySQLNew},
	{contest.MariaDB, "one query on MariaDB", []string{"mysql.Open on MariaDB"}, openQueries, ofMySQLOpen},
	{contest.MariaDB, "database/sql on MariaDB", []string{"mysql.New on MariaDB"}, openSQL, ofMySQLNew},
}
