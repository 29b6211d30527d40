//go:build !linux

package wire

import "errors"

// Silence is an error on this system.
func (p *Proxy) Silence() error { return errors.ErrUnsupported }
