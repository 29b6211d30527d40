package testbed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/must"
)

// Take takes a claim that is free.
func Take[Tx any](t *testing.T, claim *txlock.Claim[Tx], by string, d time.Duration) *txlock.Claimed[Tx] {
	t.Helper()
	held := must.Get(claim.TryTake(background, by, d))(t)
	return held
}

// StateOf says who has a claim.
func StateOf[Tx any](t *testing.T, claim *txlock.Claim[Tx]) txlock.ClaimState {
	t.Helper()
	state := must.Get(claim.State(background))(t)
	return state
}

// IsDone says whether the work of a Once is done.
func IsDone[Tx any](t *testing.T, once *txlock.Once[Tx]) bool {
	t.Helper()
	_, done, err := once.Done(background)
	require.NoError(t, err)
	return done
}
