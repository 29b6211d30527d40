package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrdersAreSubmittedToDifferentProcesses(t *testing.T) {
	const orders = 10
	times := make(map[int]int)
	for process := range processes {
		inProcess := make(map[int]bool)
		for _, index := range share(process, orders) {
			require.False(t, inProcess[index], "order %d twice to process %d", index, process)
			inProcess[index] = true
			times[index]++
		}
	}
	for index := range orders {
		require.Equal(t, copies, times[index], "order %d", index)
	}
}
