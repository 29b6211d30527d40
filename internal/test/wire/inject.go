package wire

import (
	"encoding/binary"
	"net"
)

// Protocol is how a database's clients and servers talk, as far as a proxy has to know.
type Protocol struct {
	rollback []byte
	whole    func(answer []byte) bool // tells whether the answer to one statement has come to its end
}

// The protocols of the databases. Connections must not be encrypted.
var (
	PostgreSQL = Protocol{rollback: append([]byte{'Q', 0, 0, 0, 13}, "rollback\x00"...), whole: untilReady}
	MySQL      = Protocol{rollback: append([]byte{9, 0, 0, 0, 3}, "ROLLBACK"...), whole: onePacket}
)

// untilReady looks for ReadyForQuery. Messages have a type, and a length without it.
func untilReady(answer []byte) bool {
	for len(answer) >= 5 {
		end := 1 + int(binary.BigEndian.Uint32(answer[1:]))
		if answer[0] == 'Z' || end > len(answer) {
			return end == len(answer)
		}
		answer = answer[end:]
	}
	return false
}

func onePacket(answer []byte) bool { return len(answer) >= 4 && len(answer) >= 4+packetLength(answer) }

func packetLength(packet []byte) int { return int(packet[0]) | int(packet[1])<<8 | int(packet[2])<<16 }

// errorPacket is MySQL's answer to a statement that has failed.
func errorPacket(number uint16, text string) []byte {
	packet := []byte{0, 0, 0, 1, 0xff, byte(number), byte(number >> 8)}
	packet = append(packet, "#HY000"+text...)
	packet[0], packet[1] = byte(len(packet)-4), byte((len(packet)-4)>>8)
	return packet
}

// intrusion is what happens to a server's session ahead of what its client sends next.
type intrusion struct {
	Protocol
	instead []byte // of the server's answer to the client; nil: the server answers
	answer  []byte // to the rollback, as far as it has come; guarded by Proxy.mu
	over    chan struct{}
}

// RollBack rolls back the transactions of all open connections, ahead of what their clients send
// next. The clients see nothing of it.
func (p *Proxy) RollBack(protocol Protocol) { p.intrude(protocol, nil) }

// RollBackWith is RollBack on MySQL and MariaDB. What each client sends next is answered with an
// error, once.
func (p *Proxy) RollBackWith(number uint16, text string) { p.intrude(MySQL, errorPacket(number, text)) }

func (p *Proxy) intrude(protocol Protocol, instead []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.intrusion = &intrusion{Protocol: protocol, instead: instead, over: make(chan struct{})}
	}
}

// precede sends the rollback that is due. It tells whether the client's request is answered: that
// is then not to be forwarded. The server is idle, for the client has waited for its answer.
func (p *Proxy) precede(pair *pair) (answered bool, err error) {
	p.mu.Lock()
	i := pair.intrusion
	pair.intruding, pair.intrusion = i, nil
	p.mu.Unlock()
	if i == nil {
		return false, nil
	}
	if err := p.write(pair, pair.server, i.rollback); err != nil {
		return false, err
	}
	<-i.over
	if i.instead == nil {
		return false, nil
	}
	return true, p.write(pair, pair.client, i.instead)
}

// swallow tells whether data of the server answers a rollback of the proxy's.
func (p *Proxy) swallow(pair *pair, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := pair.intruding
	if i == nil {
		return false
	}
	if i.answer = append(i.answer, data...); i.whole(i.answer) {
		pair.intruding = nil
		close(i.over)
	}
	return true
}

// release lets go of a request whose server has gone.
func (p *Proxy) release(pair *pair, from net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := pair.intruding; i != nil && from == pair.server {
		pair.intruding = nil
		close(i.over)
	}
}
