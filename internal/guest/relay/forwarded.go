package relay

import "net"

// gVisor's port forwarding can miss a wake-up: it finds no data, and only then registers for
// notification. Data that arrives in between wakes no reader until more data arrives or the guest
// closes the stream. This can delay an answer by many minutes. So the guest writes reminders.

// forwarded is like join, for the guest's end of a port that gVisor forwards.
func forwarded(plain, channel net.Conn) {
	s := newStream(plain, channel, 0)
	s.again.send = s.sendReminder
	s.again.wrote() // the answer to the port number
	s.run()
}

// sendReminder writes an empty report, unless the stream is closed.
func (s *stream) sendReminder() bool {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return false
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	var header [headerSize]byte
	putHeader(header[:], kindReport, 0)
	_, err := s.channel.Write(header[:]) // the reader gets the error
	return err == nil
}
