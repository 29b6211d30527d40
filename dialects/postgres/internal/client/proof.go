package client

import "github.com/txlock/txlock/dialects/postgres/internal/sqltext"

// BeginSQL begins a transaction of the library's.
const BeginSQL = "begin isolation level read committed read write"

var (
	// Begin is BeginSQL, which opens a script.
	Begin = sqltext.Statement{SQL: BeginSQL, Silent: true, Opens: true}
	// Commit ends one.
	Commit = sqltext.Silent("commit")
)

// MarkSetting holds the mark: a value that lives as long as the transaction, and that no other has.
const MarkSetting = "txlock.held"

// proofSQL fails by a division by zero in any transaction but the one that holds the mark.
const proofSQL = "select 1 / (current_setting('" + MarkSetting + "', true) is not distinct from $1)::int"

// Proof is a statement in front of COMMIT. In any transaction but that of the mark, COMMIT is not
// reached.
func Proof(mark string) sqltext.Statement { return sqltext.With(proofSQL, mark) }

// ending is the proof, what comes behind it, and COMMIT.
func ending(mark string, behind []sqltext.Statement) sqltext.Script {
	return append(append(sqltext.Script{Proof(mark)}, behind...), Commit)
}
