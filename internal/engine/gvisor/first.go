package gvisor

import (
	"net"
	"os"
)

// channelDescriptor is where the child that boots a box finds the box's end of
// its first stream. Opening one later costs the box a call, a connection on
// its own network and two copies of each byte, at the moment when its caller
// waits for a first command.
const channelDescriptor = 6

// keepFirst keeps our end until somebody wants it.
func (b *box) keepFirst(channel *os.File) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = channel
}

// takeFirst returns the first stream, or nil if it is taken.
func (b *box) takeFirst() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil {
		return nil
	}
	conn, err := net.FileConn(b.first)
	b.dropFirst() // FileConn has its own copy
	if err != nil {
		return nil // another one can be opened
	}
	return conn
}

// dropFirst closes what nobody took. b.mu must be held.
func (b *box) dropFirst() {
	if b.first != nil {
		b.first.Close()
		b.first = nil
	}
}
