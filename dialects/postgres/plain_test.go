package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
