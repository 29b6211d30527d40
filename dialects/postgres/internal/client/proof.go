package client

import (
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
)

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

// proofOf fails by a division by zero in any transaction but the one that holds the mark.
func proofOf(mark string) string {
	return "select 1 / (current_setting('" + MarkSetting + "', true) is not distinct from " + mark + ")::int"
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
func commitSQL(mark string) string { return identifier.Qualified(proofOf("'"+mark+"'")) + "; commit" }
