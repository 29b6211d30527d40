package wire

import "encoding/binary"

// HideKeys lets clients of PostgreSQL that come from now on not know by which key they can cancel
// their statements. RDS Proxy tells none either. Connections must not be encrypted.
func (p *Proxy) HideKeys() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keyless = true
}

// login is what a server says until it is ready for the first query.
type login struct {
	rest []byte // of a message that has not come to its end
	over bool
}

// withoutKey is data of the server, in whole messages and without BackendKeyData.
func (l *login) withoutKey(data []byte) (passes []byte) {
	if l == nil || l.over {
		return data
	}
	l.rest = append(l.rest, data...)
	for len(l.rest) >= 5 && !l.over {
		end := 1 + int(binary.BigEndian.Uint32(l.rest[1:]))
		if end > len(l.rest) {
			return passes
		}
		if l.rest[0] != 'K' {
			passes = append(passes, l.rest[:end]...)
		}
		l.over = l.rest[0] == 'Z'
		l.rest = l.rest[end:]
	}
	return passes
}
