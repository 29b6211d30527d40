package serve

import (
	"fmt"
	"strings"
	"time"
)

const (
	defaultEvery = 2 * time.Second
	leastEvery   = time.Second
	defaultLimit = 10 * time.Second
	leastToken   = 16 // bytes: nobody guesses that many over a network
)

// Option changes what New returns.
type Option interface{ apply(*config) }

type config struct {
	name     string
	hosts    []string
	token    string
	breaking bool
	every    time.Duration
	limit    time.Duration
	err      error // of the first bad option
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

func (c *config) refuse(format string, arguments ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("txlock: serve: "+format, arguments...)
	}
}

// Name is shown at the top of the page: which server this is.
func Name(name string) Option { return optionFunc(func(c *config) { c.name = name }) }

// Hosts allows requests with these names in their Host header, without a port. Always allowed are
// localhost and the address at which the request arrived. All others are refused with 403:
// otherwise any web site could have its name resolve to this machine, and read the page.
func Hosts(names ...string) Option {
	return optionFunc(func(c *config) {
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, "/ ") {
				c.refuse("Hosts: %q is no name of a host", name)
			}
			c.hosts = append(c.hosts, strings.ToLower(strings.Trim(name, "[]")))
		}
	})
}

// Token makes viewers log in with this secret, of at least 16 bytes: a browser asks for a name,
// which may be any, and a password. Programs send it as a bearer token. Without TLS everybody on
// the way can read the secret.
func Token(secret string) Option {
	return optionFunc(func(c *config) {
		if len(secret) < leastToken {
			c.refuse("Token: it must have at least %d bytes", leastToken)
		}
		c.token = secret
	})
}

// AllowBreak lets viewers end the session of a holder, after a page that shows whose it is. Only
// that session is ended, in the transaction that was shown.
func AllowBreak() Option { return optionFunc(func(c *config) { c.breaking = true }) }

// Every is how often the server is asked while somebody looks, 2 s by default and at least 1 s. On
// MariaDB less than 2 s is too often: see [txlock.Locker.Inspect]. A slow answer makes the next
// question come later, so that the server is not busy with them for more than half of the time.
func Every(pause time.Duration) Option {
	return optionFunc(func(c *config) {
		if pause < leastEvery {
			c.refuse("Every: %v is less than %v", pause, leastEvery)
		}
		c.every = pause
	})
}

// Timeout is how long the server may take to answer, 10 s by default.
func Timeout(limit time.Duration) Option {
	return optionFunc(func(c *config) {
		if limit <= 0 {
			c.refuse("Timeout: %v is not positive", limit)
		}
		c.limit = limit
	})
}
