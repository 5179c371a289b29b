package relay

import "net"

// gVisor's port forwarding can sleep beside something to read: it looks, finds
// nothing, and only then asks to be woken. What comes in between wakes nobody, and
// lies there until more comes or the guest closes the stream: a command's answer
// came ten minutes late. So the guest says again that there is something.

// forwarded is join for the guest's end of a port that gVisor forwards.
func forwarded(plain, channel net.Conn) {
	s := newStream(plain, channel, 0)
	s.again.remind = s.remind
	s.again.wrote() // the answer to the port's number
	s.run()
}

// remind writes a report of nothing, unless the stream is closed.
func (s *stream) remind() bool {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return false
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	var header [headerSize]byte
	putHeader(header[:], kindTaken, 0)
	_, err := s.channel.Write(header[:]) // whoever reads sees what is wrong
	return err == nil
}
