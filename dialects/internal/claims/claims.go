// Package claims reads the rows of claims, as the statements of all dialects have them.
package claims

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
)

// States are the claims of these lines. A line has, between blanks: the hash, the token, the
// secret, since, until, and what is left, in microseconds, the holder, and the name. The hash and
// texts are in hexadecimal digits.
func States(lines []string) (map[[32]byte]dialects.ClaimState, error) {
	states := make(map[[32]byte]dialects.ClaimState, len(lines))
	for _, line := range lines {
		fields := strings.Split(line, " ")
		if len(fields) != 8 {
			return nil, fmt.Errorf("bug: no state of a claim: %q", line)
		}
		var numbers [5]int64
		var err error
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(fields[i+1], 10, 64); err != nil {
				return nil, err
			}
		}
		var hash [32]byte
		texts := [3][]byte{hash[:]}
		for i, field := range []string{fields[0], fields[6], fields[7]} {
			if texts[i], err = hex.DecodeString(field); err != nil {
				return nil, err
			}
		}
		copy(hash[:], texts[0])
		states[hash] = dialects.ClaimState{
			Name: string(texts[2]), By: string(texts[1]), Token: numbers[0], Secret: numbers[1],
			Since: time.UnixMicro(numbers[2]), Until: time.UnixMicro(numbers[3]),
			Left: time.Duration(numbers[4]) * time.Microsecond,
		}
	}
	return states, nil
}

// Changed is the claim that a change has left, and an error unless it is what the change asks for.
func Changed(lines []string, change dialects.ClaimChange) (dialects.ClaimState, error) {
	states, err := States(lines)
	if err != nil {
		return dialects.ClaimState{}, err
	}
	return states[change.Hash], judge(change, states[change.Hash])
}

func judge(c dialects.ClaimChange, left dialects.ClaimState) error {
	switch {
	case c.Verb == dialects.TakeClaim && left.Token == 0: // nothing was drawn
		return fencing.ErrNoRun
	case c.Verb == dialects.TakeClaim: // the caller sees who has it
		return nil
	case left.By != c.By || left.Token != c.Token || left.Secret != c.Secret:
		return fmt.Errorf("%w: another has taken it since, or it is gone", dialects.ErrClaimEnded)
	case left.Until.Equal(dialects.Released):
		if c.Verb == dialects.ReleaseClaim {
			return nil
		}
		return fmt.Errorf("%w: it was released", dialects.ErrClaimEnded)
	case c.Verb == dialects.BreakClaim:
		return nil
	case left.Left <= 0:
		return fmt.Errorf("%w: its time was over at %s, by the database's clock", dialects.ErrClaimEnded,
			left.Until.UTC().Format(time.RFC3339Nano))
	}
	return nil
}
