package testbed

import "github.com/txlock/txlock"

// LockLater locks and unlocks in the background, and then tells whether that succeeded.
func LockLater[Tx any](m *txlock.Mutex[Tx]) <-chan error {
	ended := make(chan error, 1)
	go func() {
		lock, err := m.Lock(background)
		if err == nil {
			err = lock.Unlock(background)
		}
		ended <- err
	}()
	return ended
}
