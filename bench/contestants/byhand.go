package contestants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
)

// byHand is a lock written by hand in SQL, for PostgreSQL and MySQL. Its statements have
// placeholders for what the two spell differently: {moment} is the type of a time, {now} the
// current time, {deadline} the end of a lease that begins now. "{insert if new} t VALUES (…) {if
// new}" inserts a row unless it exists. "INSERT INTO t VALUES (…) {else} …" updates it in that
// case. Parameters are written as ?.
type byHand struct {
	contest.Contestant // without the fields that differ between servers
	tables             []table
	client             func(db database, lease time.Duration, write func(statement string) string) contest.Client
}

// table is a table that the lock needs. Its first column is called name.
type table struct {
	name, columns string
	rows          func(keys []string) []string // the names of its initial rows; nil: none
}

// everyKey gives each key a row from the start.
func everyKey(keys []string) []string { return keys }

// register registers the lock on both databases.
func (b byHand) register() {
	for _, server := range []contest.Server{contest.PostgreSQL, contest.MySQL} {
		c := b.Contestant
		c.Name, c.Group, c.Server = fmt.Sprintf("%s, %s", b.Name, server), contest.ByHand, server
		writer := func(env contest.Environment) func(string) string {
			return func(statement string) string { return write(server, statement, env.Lease) }
		}
		c.Prepare = func(ctx context.Context, env contest.Environment, keys []string) error {
			db, err := openDatabase(ctx, server, contest.Environment{Addresses: env.Addresses, Contenders: 1})
			if err != nil {
				return err
			}
			defer db.Close()
			for _, table := range b.tables {
				if err := table.create(ctx, db, writer(env), keys); err != nil {
					return fmt.Errorf("create %s: %w", table.name, err)
				}
			}
			return nil
		}
		c.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			db, err := openDatabase(ctx, server, env)
			if err != nil {
				return nil, err
			}
			return b.client(db, env.Lease, writer(env)), nil
		}
		contest.Register(c)
	}
}

func (t table) create(ctx context.Context, db database, write func(string) string, keys []string) error {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + t.name, write("CREATE TABLE " + t.name + " (" + t.columns + ")"),
	} {
		if _, err := db.exec(ctx, statement); err != nil {
			return err
		}
	}
	if t.rows == nil {
		return nil
	}
	for names := range slices.Chunk(t.rows(keys), 1000) {
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = name
		}
		insert := "INSERT INTO " + t.name + " (name) VALUES (?)" + strings.Repeat(", (?)", len(names)-1)
		if _, err := db.exec(ctx, write(insert), values...); err != nil {
			return err
		}
	}
	return nil
}

// write translates a statement of [byHand] for a server.
func write(server contest.Server, statement string, lease time.Duration) string {
	length := strconv.FormatInt(lease.Microseconds(), 10)
	if server != contest.PostgreSQL {
		return strings.NewReplacer("{moment}", "DATETIME(6)", "{now}", "UTC_TIMESTAMP(6)",
			"{deadline}", "UTC_TIMESTAMP(6) + INTERVAL "+length+" MICROSECOND",
			"{insert if new}", "INSERT IGNORE INTO", "{if new}", "",
			"{else}", "ON DUPLICATE KEY UPDATE").Replace(statement)
	}
	var numbered strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			numbered.WriteString("$" + strconv.Itoa(i))
		}
		numbered.WriteString(part)
	}
	// now() would be the start of the transaction, which may have waited since.
	return strings.NewReplacer("{moment}", "TIMESTAMPTZ", "{now}", "clock_timestamp()",
		"{deadline}", "clock_timestamp() + INTERVAL '"+length+" microseconds'",
		"{insert if new}", "INSERT INTO", "{if new}", "ON CONFLICT DO NOTHING",
		"{else}", "ON CONFLICT (name) DO UPDATE SET").Replace(numbered.String())
}

// poll tries to lock until it succeeds. A try is short, and continues when ctx ends: an interrupted
// try might take a lock that nobody unlocks.
func poll(ctx context.Context, every time.Duration, key string,
	try func(ctx context.Context) (locked bool, err error),
) error {
	err := contest.Poll(ctx, every, func() (bool, error) {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		trying, cancel := unlocking(ctx)
		defer cancel()
		locked, err := try(trying)
		if again(err) {
			return false, nil
		}
		return locked, err
	})
	if err != nil {
		return fmt.Errorf("lock %q: %w", key, err)
	}
	return nil
}

// errLost is the error of an unlock when another holder has, or had, the lock.
var errLost = errors.New("the lock was lost before it was unlocked")

// unlock runs release, which only has an effect while the lock is still held.
func unlock(ctx context.Context, key string, release func(ctx context.Context) (affected int64, err error)) error {
	ctx, cancel := unlocking(ctx)
	defer cancel()
	affected, err := release(ctx)
	for again(err) && ctx.Err() == nil {
		affected, err = release(ctx)
	}
	if err == nil && affected == 0 {
		err = errLost
	}
	if err != nil {
		return fmt.Errorf("unlock %q: %w", key, err)
	}
	return nil
}
