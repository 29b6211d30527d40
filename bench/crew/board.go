package crew

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Board is memory shared by all processes of a run. It counts how often the lock was entered, so a
// worker that has released the lock learns when another has entered it. A message for that would
// cost the machine more than the lock does.
type Board struct {
	file    *os.File
	memory  []byte
	entered *atomic.Int64
}

// NewBoard creates a board in folder.
func NewBoard(folder string) (*Board, error) {
	path := filepath.Join(folder, "board")
	if err := os.WriteFile(path, make([]byte, os.Getpagesize()), 0o600); err != nil {
		return nil, err
	}
	return OpenBoard(path)
}

// OpenBoard opens a board that another process has created.
func OpenBoard(path string) (*Board, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	// The mapping begins at a page boundary, so the word is aligned.
	return &Board{file: file, memory: memory, entered: (*atomic.Int64)(unsafe.Pointer(&memory[0]))}, nil
}

// Path is the file that other processes open.
func (b *Board) Path() string { return b.file.Name() }

// Entered is how often the lock was entered.
func (b *Board) Entered() int64 { return b.entered.Load() }

// Clear resets the count. Nobody may be using the lock.
func (b *Board) Clear() { b.entered.Store(0) }

func (b *Board) enter() int64 { return b.entered.Add(1) }

// Close unmaps the memory and closes the file.
func (b *Board) Close() error {
	if err := unix.Munmap(b.memory); err != nil {
		return err
	}
	return b.file.Close()
}
