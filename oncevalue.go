package txlock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
)

// OnceValue is [Once.Do] for work that has an answer: who comes later gets that of the first time,
// and ran is false. The marker keeps the answer as JSON, in the transaction of the work, with a
// hash of payload: the same key with another one is [ErrOtherPayload]. All get what json has read
// again, the first too. What it cannot, or of more than 1 MiB, is an error, and nothing of the
// work is kept. Work that a method of o has marked has no answer, nor has this very work while it
// runs: both are an error.
func OnceValue[T, Tx any](ctx context.Context, o *Once[Tx], payload []byte,
	work func(ctx context.Context, tx Tx) (T, error),
) (answer T, ran bool, err error) {
	return onceValue(ctx, o, "OnceValue", false, payload, work)
}

// TryOnceValue is OnceValue without waiting: [ErrNotAcquired] while another does the work.
func TryOnceValue[T, Tx any](ctx context.Context, o *Once[Tx], payload []byte,
	work func(ctx context.Context, tx Tx) (T, error),
) (answer T, ran bool, err error) {
	return onceValue(ctx, o, "TryOnceValue", true, payload, work)
}

func onceValue[T, Tx any](ctx context.Context, o *Once[Tx], verb string, try bool, payload []byte,
	work func(ctx context.Context, tx Tx) (T, error),
) (answer T, ran bool, err error) {
	if o.isRunning(ctx) {
		return answer, false, o.mutex.wrap(verb, errInOwn)
	}
	const most = 1 << 20
	hash, kept := sha256.Sum256(payload), []byte(nil)
	read := func() (answer T, err error) {
		text, same := bytes.CutPrefix(kept, hash[:])
		switch {
		case kept == nil:
			err = errors.New("the work was marked by Once.Do or DoTx, which keep no answer")
		case !same:
			err = ErrOtherPayload
		default:
			err = json.Unmarshal(text, &answer)
		}
		return answer, o.mutex.wrap(verb, err)
	}
	keeping := func(ctx context.Context, tx Tx) error {
		answer, err := work(ctx, tx)
		if err != nil {
			return err
		}
		text, err := json.Marshal(answer)
		if kept = append(hash[:], text...); len(text) > most {
			err = fmt.Errorf("the answer has %d bytes as JSON, and may have %d", len(text), most)
		}
		if err != nil {
			return o.mutex.wrap(verb, err)
		}
		_, err = read() // what nobody could read is not kept
		return err
	}
	if work == nil {
		keeping = nil
	}
	valued := *o
	valued.answer = &kept
	if ran, err = valued.do(ctx, verb, try, keeping); err == nil {
		answer, err = read()
	}
	return answer, ran, err
}
