package contestants

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

const centralSlots = 100

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "CRC32 central lock", Waits: contest.Polling, Leased: true,
			Remark: "100 slots guard status rows with a deadline; no renewal: work longer than it is not alone",
		},
		tables: []table{
			{name: "bench_central_slots", columns: "name VARCHAR(2) PRIMARY KEY", rows: func([]string) []string {
				slots := make([]string, centralSlots)
				for i := range slots {
					slots[i] = slotName(uint32(i))
				}
				return slots
			}},
			{
				name: "bench_central",
				columns: "name VARCHAR(255) PRIMARY KEY, status VARCHAR(8) NOT NULL DEFAULT 'free', owner " +
					"VARCHAR(64), " +
					"deadline {moment}",
				rows: everyKey,
			},
		},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return central{
				database: db,
				slot:     write("SELECT name FROM bench_central_slots WHERE name = ? FOR UPDATE"),
				look:     write("SELECT status = 'free' OR deadline < {now} FROM bench_central WHERE name = ?"),
				take: write("UPDATE bench_central SET status = 'taken', owner = ?, deadline = {deadline} WHERE " +
					"name = ?"),
				free: write("UPDATE bench_central SET status = 'free', owner = NULL WHERE name = ? AND owner = ?"),
			}
		},
	}.register()
}

func slotName(slot uint32) string { return fmt.Sprintf("%02d", slot) }

// central locks with two tables. Whoever has set a key's status row to taken has the key. Whoever
// looks at a status row first locks one of 100 central rows for a moment: the one with the last two
// digits of the key's CRC32.
type central struct {
	database
	slot, look, take, free string
}

// Hold implements contest.Client.
func (c central) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

func (c central) lock(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	owner := rand.Text()
	err := poll(ctx, contest.PollInterval, key, func(ctx context.Context) (free bool, err error) {
		err = c.guarded(ctx, key, func(tx transaction) error {
			if err := tx.one(ctx, []any{&free}, c.look, key); err != nil {
				return fmt.Errorf("look at the status: %w", err)
			}
			if !free {
				return nil
			}
			_, err := tx.exec(ctx, c.take, owner, key)
			return err
		})
		return free && err == nil, err
	})
	return ctx, func() error {
		return unlock(ctx, key, func(ctx context.Context) (freed int64, err error) {
			err = c.guarded(ctx, key, func(tx transaction) error {
				freed, err = tx.exec(ctx, c.free, key, owner)
				return err
			})
			return freed, err
		})
	}, err
}

// guarded runs do on the status row of a key while it holds the central row.
func (c central) guarded(ctx context.Context, key string, do func(tx transaction) error) error {
	return c.transact(ctx, func(tx transaction) error {
		var slot string
		name := slotName(crc32.ChecksumIEEE([]byte(key)) % centralSlots)
		if err := tx.one(ctx, []any{&slot}, c.slot, name); err != nil {
			return fmt.Errorf("lock slot %s: %w", name, err)
		}
		return do(tx)
	})
}
