package txlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/queue"
)

type (
	lines = queue.Lines[lineName]
	place = queue.Place[lineName]
)

// lineName names a set of rows, by their values with NUL between them. Sets of binary values that
// have one themselves may share a line: they wait longer, and nothing else.
type lineName struct{ table, column, values string }

func lineOf(table, column string, values ...dialects.Value) lineName {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = value.Text
	}
	return lineName{table, column, strings.Join(texts, "\x00")}
}

// row is a row of a table.
type row struct{ table, column, value string }

// waitingHere is how many callers of this Locker wait for each row, without a session.
func (l *Locker[Tx]) waitingHere() map[row]int {
	count := map[row]int{}
	add := func(name lineName, waiting int) {
		for text := range strings.SplitSeq(name.values, "\x00") {
			count[row{name.table, name.column, text}] += waiting
		}
	}
	l.lines().Each(add)
	l.candidates.Each(add)
	return count
}

// newLines is called once, at the first call that needs the size of the pool.
func (l *Locker[Tx]) newLines() *lines {
	limit := l.config.queue
	if limit == 0 {
		limit = max(l.info().PoolSize/4, 2)
	}
	return queue.New[lineName](l.closing, limit)
}

// awaitPlace waits in a line of the process: alone as queue.Lines.Enter says. A panic of the
// Tracer leaves nobody in line, and no session with nobody.
func (l *Locker[Tx]) awaitPlace(ctx, wait context.Context, in *lines, name lineName, alone bool) (p *place, err error) {
	p = in.Enter(name, alone)
	if !p.Waits() {
		return p, nil
	}
	goesOn := false
	defer func() {
		if !goesOn {
			p.Leave()
		}
	}()
	tracer, traces := l.config.tracer.(QueueTracer)
	if traces {
		tracer.Queued(ctx)
	}
	err = p.Wait(wait)
	if traces {
		tracer.Admitted(ctx)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	goesOn = err == nil
	return p, err
}

// queueAndBegin waits in the process until the rows of request may be asked for, and asks for them.
// Who shares, or tries for a permit, does not wait there.
func (m *Mutex[Tx]) queueAndBegin(ctx, wait context.Context, request dialects.Request) (g grant[Tx], err error) {
	l := m.locker
	name := func() lineName { return lineOf(request.Table, request.Column, request.Values...) }
	var p *place
	switch {
	case request.Shared, m.permit != nil:
	case request.Try:
		var free bool
		if p, free = l.lines().Try(name()); !free {
			err = fmt.Errorf("%w: other callers of this process hold it or wait for it", ErrNotAcquired)
		}
	default:
		p, err = l.awaitPlace(ctx, wait, l.lines(), name(), request.Work.IsExec())
	}
	if err != nil {
		return g, err
	}
	return l.begin(ctx, wait, &m.target, request, p)
}
