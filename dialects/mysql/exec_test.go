package mysql

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

// Integers travel in places where they mean the same as arguments. What is a guess does not.
func TestTravelling(t *testing.T) {
	travels := []string{
		"UPDATE t SET n = n - ?, m=-1 WHERE id = ? AND s = ' '",
		"update `a`.`t` set `n` = `t`.`n` + ? where (id = ? or `b`<>?)",
		"INSERT INTO t VALUES (?, ?, NOW(), 'x', ?), (1, ?, 2)",
		"INSERT INTO t VALUES (?) ON DUPLICATE KEY UPDATE n = n + ?",
		"DELETE FROM t WHERE id IN (?, 7, ?)",
	}
	stays := []string{
		"UPDATE t SET n = ROUND(?, 1)", "UPDATE t SET n = ? / 7", "UPDATE t SET n = n + ? * 0.1", "UPDATE t SET n = -?",
		"UPDATE t SET n = ?and", "UPDATE t SET n = 1 ORDER BY ?", "UPDATE t SET n = 1 LIMIT ?",
		"INSERT INTO t VALUES (?, ROUND(?, 1))", "INSERT INTO t SELECT id, ? FROM u",
		"UPDATE t SET n = 1 WHERE s = '?'",
		"UPDATE t SET n = 1 /* , m = 2 */ WHERE id", "SELECT 1",
		"INSERT INTO t VALUES (ROW_COUNT())", "UPDATE t SET n = found_rows()",
	}
	sent := func(text string, arg any) string {
		args := slices.Repeat([]any{arg}, strings.Count(text, "?"))
		return travelling(dialects.Statement{SQL: text, Args: args})
	}
	for _, text := range travels {
		require.Equal(t, strings.ReplaceAll(text, "?", "-5"), sent(text, -5))
		for _, other := range []any{uint(1), true, "1", 1.0, nil, []byte("1"), new(int)} {
			require.Empty(t, sent(text, other), "%T", other)
		}
	}
	for _, text := range stays {
		require.Empty(t, sent(text, -5), text)
	}
}
