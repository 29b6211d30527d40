package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextOf(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]script{
		"begin; select 'a'":              {{sql: "begin"}, {"select $1", []string{"a"}}},
		"select 'a''b', 'c'":             {{"select $1, $2", []string{"a'b", "c"}}},
		`select  E'a\\''b'::text`:        {{"select $1::text", []string{`a\'b`}}},
		`select '$1', "$1", 'it''s $1'`:  {{`select '$1', "$1", 'it''s $1'`, []string{"a"}}},
		`select '""', 'a', "x""y$1"`:     {{`select '""', $1, "x""y$1"`, []string{"a"}}},
		"select '$2', 'b'":               {{"select $1, $2", []string{"$2", "b"}}},
		"select '1', '10'":               {{"select $1, $10", strings.Fields("1 2 3 4 5 6 7 8 9 10")}},
		"select 'Zoë; drop table slots'": {{"select $1", []string{"Zoë; drop table slots"}}},
	} {
		text, err := textOf(s)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	_, err := textOf(script{{"select $1", []string{"a\x00b"}}})
	require.ErrorContains(t, err, "NUL")
	_, err = textOf(script{{"select $2", []string{"a"}}})
	require.ErrorContains(t, err, "bug")
}

func TestReturnsRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"select 1": true,
		"begin isolation level read committed read write":                                       false,
		"set local txlock.idle = ''":                                                            false,
		"insert into t values (1)":                                                              false,
		"insert into t values (1) on conflict do update set a = 1 returning a":                  true,
		"update t set a = 1 returning a":                                                        true,
		"with r as (insert into t values (1) returning a) update t set b from r":                false,
		"with r as (insert into t values (1) returning a) update t set b returning b":           true,
		"with r as (select '(' from t), gone as (delete from t using r) select count(*) from r": true,
		"INSERT INTO t (slot, slots)\nSELECT slot, 1 FROM generate_series(0, 1) AS slot":        false,
	} {
		require.Equal(t, want, returnsRows(text), text)
	}
}
