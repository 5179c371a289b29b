package gvisor

import "net"

// channelDescriptor is where the child that makes a box's kernel finds the
// box's end of its first stream: what it reads, and after it what it writes.
// Opening a stream later costs the box a call, a connection on its own network
// and two copies of each byte, at the moment when its caller waits for a first
// command.
const channelDescriptor = 5

// keepFirst keeps our end until somebody wants it.
func (b *box) keepFirst(channel net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = channel
}

// takeFirst returns the first stream, or nil if it is taken.
func (b *box) takeFirst() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.first
	b.first = nil
	return first
}

// dropFirst closes what nobody took. b.mu must be held.
func (b *box) dropFirst() {
	if b.first != nil {
		b.first.Close()
		b.first = nil
	}
}
