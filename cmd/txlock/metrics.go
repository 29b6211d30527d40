package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/internal/exposition"
	"github.com/txlock/txlock/serve"
)

func electionFlag(c *cobra.Command, elections *[]string) {
	c.Flags().StringArrayVar(elections, "election", nil, "tell who leads the election of this `name`; can be repeated")
}

// expose writes metrics of the locks. A server that does not answer is a metric too, and the error
// of the command.
func (s *status) expose(ctx context.Context, out io.Writer) error {
	if err := s.findTable(); err != nil {
		return err
	}
	var found serve.Metrics
	err := s.with(ctx, func(locks locker) (err error) {
		if found.Holdings, err = s.inspect(ctx, "status", locks); err != nil {
			return err
		}
		found.At, found.Keys = time.Now(), s.keys
		bounded, cancel := context.WithTimeout(ctx, s.server.Timeout)
		defer cancel()
		found.Leaders = serve.AskLeaders(bounded, leadersOf(locks, s.elections))
		return nil
	})
	found.Down = err != nil
	return errors.Join(err, s.failed(ctx, "write", found.Expose(out)))
}

// exposeFindings writes the worst finding of each check. The numbers are those of the severities,
// in their order.
func exposeFindings(out io.Writer, findings []doctor.Finding) error {
	worst := map[string]int{}
	for _, f := range findings {
		worst[f.Check] = max(worst[f.Check], slices.Index(doctor.Severities, f.Severity))
	}
	of := exposition.Gauge{
		Name: "txlock_doctor_finding",
		Help: "The worst finding of a check of txlock doctor: 0 ok, 1 note, 2 warning, 3 failure.",
	}
	for _, check := range slices.Sorted(maps.Keys(worst)) {
		of.Add(float64(worst[check]), "check", check)
	}
	at := exposition.Gauge{Name: "txlock_doctor_timestamp_seconds", Help: "When txlock doctor has examined the server."}
	at.Add(float64(time.Now().UnixMilli()) / 1000)
	return exposition.Write(out, of, at)
}
