package crew

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Board is memory that all processes of a run share: how often the lock was entered. So one who has
// released a lock learns without a message, which would cost the machine more than the lock does,
// that another one is inside.
type Board struct {
	file    *os.File
	memory  []byte
	entered *atomic.Int64
}

// NewBoard creates a board in a folder.
func NewBoard(folder string) (*Board, error) {
	path := filepath.Join(folder, "board")
	if err := os.WriteFile(path, make([]byte, os.Getpagesize()), 0o600); err != nil {
		return nil, err
	}
	return OpenBoard(path)
}

// OpenBoard opens the board that another process created.
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
	// A page is aligned to more than a word needs.
	return &Board{file: file, memory: memory, entered: (*atomic.Int64)(unsafe.Pointer(&memory[0]))}, nil
}

// Path is what other processes open.
func (b *Board) Path() string { return b.file.Name() }

// Entered is how often the lock was entered.
func (b *Board) Entered() int64 { return b.entered.Load() }

// Clear begins a new count. Nobody may be using the lock.
func (b *Board) Clear() { b.entered.Store(0) }

func (b *Board) enter() int64 { return b.entered.Add(1) }

// Close gives the memory back.
func (b *Board) Close() error {
	if err := unix.Munmap(b.memory); err != nil {
		return err
	}
	return b.file.Close()
}
