//go:build !linux

package servers

const sharedMemory = "" // there is none

func inMemory() string { return "" }
