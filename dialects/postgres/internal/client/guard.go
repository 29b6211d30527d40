package client

import "github.com/txlock/txlock/dialects/postgres/internal/sqltext"

const (
	// BeginSQL begins a transaction of the library's.
	BeginSQL = "begin isolation level read committed read write"

	// GuardSQL guards the session. Work that sends COMMIT or ROLLBACK itself goes on outside any
	// transaction. There each statement would commit at once and without the lock. So while work
	// runs, the session's default is read only, and only our own BEGIN says READ WRITE. The default
	// must be committed before the work, by ChainSQL, or a ROLLBACK of the work would undo it. A
	// custom setting keeps the old default: it lives in the session alone. A script that is sent
	// anew finds the session guarded, and leaves what is kept.
	//
	// It is set only where the server is the process that the connection was told of. A pooler in
	// between has numbers of its own. It may give the session to another client when this one dies,
	// with all that was set: PgCat, Odyssey and PgDog send ROLLBACK, and no RESET.
	GuardSQL = "select set_config('txlock.read_only', coalesce(nullif(current_setting('txlock.read_only', true), " +
		"''), current_setting('default_transaction_read_only')), false), " +
		"set_config('default_transaction_read_only', 'on', false) where pg_backend_pid()::text = $1"
	unguardColumn = "case when current_setting('txlock.read_only', true) <> '' then " +
		"set_config('default_transaction_read_only', current_setting('txlock.read_only'), false) || " +
		"set_config('txlock.read_only', '', false) end"

	// ChainSQL commits, and begins the next transaction as the last one was begun.
	ChainSQL = "commit and chain"

	// RestoreSQL undoes GuardSQL in a transaction, and leaves an empty one open. It is one query,
	// so that the session is not idle in between.
	RestoreSQL = "rollback and chain; select " + unguardColumn + "; commit and chain"
)

var (
	// Begin is BeginSQL, which opens a script.
	Begin = sqltext.Statement{SQL: BeginSQL, Silent: true, Opens: true}
	// Commit ends one.
	Commit = sqltext.Silent("commit")
)

// MarkSetting holds the mark: a value that lives as long as the transaction, and that no other has.
const MarkSetting = "txlock.held"

// proofOf fails by a division by zero in any transaction but the one that holds the mark, and
// undoes GuardSQL. It is one statement, because each costs the server as much as a lock. Its
// failure takes back what it has set.
func proofOf(mark string) string {
	return "select 1 / (current_setting('" + MarkSetting + "', true) is not distinct from " + mark + ")::int, " +
		unguardColumn
}

var proofSQL = proofOf("$1")

// Proof is a statement in front of COMMIT. In any transaction but that of the mark, COMMIT is not
// reached.
func Proof(mark string) sqltext.Statement { return sqltext.With(proofSQL, mark) }

// ending is the proof, what comes behind it, and COMMIT.
func ending(mark string, behind []sqltext.Statement) sqltext.Script {
	return append(append(sqltext.Script{Proof(mark)}, behind...), Commit)
}

// commitSQL is the proof and COMMIT as one simple query. It takes the server some 30 µs longer than
// a statement that was prepared.
func commitSQL(mark string) string { return proofOf("'"+mark+"'") + "; commit" }
