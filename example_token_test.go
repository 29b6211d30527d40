package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/txlock/txlock"
)

// store is a system outside the lock's database. It remembers the largest token that it has seen,
// and refuses older ones.
type store struct {
	mu    sync.Mutex
	token int64
	value string
}

var errFenced = errors.New("refused: a later holder has been here")

func (s *store) write(token int64, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errFenced
	}
	s.token, s.value = token, value
	return nil
}

// A lock cannot stop a holder that was paused, does not know that its lock is lost, and continues
// to write to another system. That system can, if each write carries the token of its lock.
func ExampleLock_Token() {
	ctx := context.Background()
	locks := open(ctx, txlock.WithFencing())
	defer locks.Close()
	var s store

	old, err := locks.Mutex("file").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_ = old.Unlock(ctx) // or its process was stopped for longer than its lease
	lock, err := locks.Mutex("file").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	fmt.Println(s.write(lock.Token(), "new"))
	fmt.Println(s.write(old.Token(), "late"))
	// Output:
	// <nil>
	// refused: a later holder has been here
}
