//go:build !linux

package servers

func inMemory() string { return "" }
