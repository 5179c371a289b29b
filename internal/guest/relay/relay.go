// Package relay owns the streams between the host and a sandbox's guest: a small protocol with flow
// control over a channel that loses bytes when it is full.
//
// gVisor's port forwarding writes to a port inside without checking how much was accepted. So a
// sender must never have more data in flight than the port's send buffer holds.
//
// A stream begins with the port number in two bytes from the host, which the guest answers with one
// byte. After that both sides send frames: data, reports of how much data was delivered, and the
// end. An end from either side ends the stream once all earlier data was delivered.
package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// window is the maximum amount of data that each side may have in flight. gVisor's send buffer
// holds 1 MiB, of which frame headers and reports need little.
const window = 256 << 10

// Answers of the guest to a port number.
const (
	accepted byte = 1
	refused  byte = 2
)

// Kinds of frames. A header has the kind in its first byte and a length in the other three.
const (
	kindData   byte = 1 // and that many bytes
	kindReport byte = 2 // that many bytes were delivered
	kindEnd    byte = 3
)

const (
	headerSize = 4
	maxFrame   = 32 << 10
	// reportAfter is the amount of data that is delivered between two reports.
	reportAfter = window / 4
)

// ErrRefused is returned if a port has no listener.
var ErrRefused = errors.New("no program listens on the port")

var errProtocol = errors.New("the other side of the relay violated the protocol")

// stream connects a plain connection to a channel.
type stream struct {
	plain, channel net.Conn
	timeout        time.Duration

	writing sync.Mutex // one frame at a time is written to the channel
	// again reminds the host that there is data to read. On the host, it is the zero value and
	// never runs.
	again reminder

	mu      sync.Mutex
	changed *sync.Cond
	credit  int      // bytes that may still be sent
	queue   [][]byte // received and not yet delivered
	queued  int
	ended   bool // the other side sends no more
	closed  bool
	timer   *time.Timer // started at this side's end
}

// linger is how long the host waits until the guest closes a stream that the host has ended. A
// guest that never closes it would otherwise hold a descriptor of the server.
const linger = 30 * time.Second

// join copies between a plain connection and a channel until one of them ends, and closes both. If
// timeout is not zero, it limits the time from this side's end to the peer's close.
func join(plain, channel net.Conn, timeout time.Duration) {
	newStream(plain, channel, timeout).run()
}

func newStream(plain, channel net.Conn, timeout time.Duration) *stream {
	s := &stream{plain: plain, channel: channel, credit: window, timeout: timeout}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// run runs a stream until it is closed.
func (s *stream) run() {
	var copies sync.WaitGroup
	copies.Go(s.send)
	copies.Go(s.deliver)
	s.receive()
	copies.Wait()
}

// close ends all three goroutines of a stream. Data that was received before an end has been
// delivered already.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.again.stop()
	s.changed.Broadcast()
	// Both ends of plain belong to this process, and their users notice the close.
	_ = s.plain.Close()
	_ = s.channel.Close()
}

// send copies data from the plain connection to the channel, within the peer's window.
func (s *stream) send() {
	buffer := make([]byte, headerSize+maxFrame)
	for {
		available := s.available()
		if available == 0 {
			return
		}
		n, err := s.plain.Read(buffer[headerSize : headerSize+available])
		if n > 0 {
			s.useCredit(n)
			putHeader(buffer, kindData, n)
			if s.write(buffer[:headerSize+n]) != nil {
				s.close()
				return
			}
		}
		if err != nil {
			s.end()
			return
		}
	}
}

// end announces that no more data follows. The peer closes the channel when it has delivered
// everything, which also ends this side.
func (s *stream) end() {
	var header [headerSize]byte
	putHeader(header[:], kindEnd, 0)
	if s.write(header[:]) != nil {
		s.close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeout > 0 && !s.closed {
		s.timer = time.AfterFunc(s.timeout, s.close)
	}
}

// available waits until data may be sent and returns how much, or 0 if the stream is closed.
func (s *stream) available() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit == 0 && !s.closed {
		s.changed.Wait()
	}
	if s.closed {
		return 0
	}
	return min(s.credit, maxFrame)
}

func (s *stream) useCredit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit -= n
}

func (s *stream) write(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.channel.Write(frame)
	if s.again.send != nil {
		s.again.wrote()
	}
	return err
}

// receive reads frames. It never waits for the plain connection, so that reports about the other
// direction are not delayed by data.
func (s *stream) receive() {
	var header [headerSize]byte
	for {
		if _, err := io.ReadFull(s.channel, header[:]); err != nil {
			s.close()
			return
		}
		kind, n := header[0], int(binary.BigEndian.Uint32(header[:])&0xffffff)
		if err := s.handleFrame(kind, n); err != nil {
			s.close()
			return
		}
	}
}

// handleFrame handles one frame. The limits hold even against a hostile peer, which can make this
// side store at most one window.
func (s *stream) handleFrame(kind byte, n int) error {
	switch kind {
	case kindData:
		if n == 0 || n > maxFrame {
			return errProtocol
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(s.channel, data); err != nil {
			return err
		}
		return s.enqueue(data)
	case kindReport:
		return s.addCredit(n)
	case kindEnd:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = true
		s.changed.Broadcast()
		return nil
	}
	return fmt.Errorf("%w: kind %d", errProtocol, kind)
}

func (s *stream) enqueue(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.queued+len(data) > window {
		return errProtocol
	}
	s.queue = append(s.queue, data)
	s.queued += len(data)
	s.changed.Broadcast()
	return nil
}

func (s *stream) addCredit(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.credit+n > window {
		return errProtocol
	}
	s.credit += n
	s.changed.Broadcast()
	return nil
}

// deliver writes received data to the plain connection and reports it.
func (s *stream) deliver() {
	unreported := 0
	for {
		data, more := s.next()
		if !more {
			s.close()
			return
		}
		if _, err := s.plain.Write(data); err != nil {
			s.close()
			return
		}
		// Delivered data counts as queued until it is reported, so that both sides count the same.
		if unreported += len(data); unreported < reportAfter {
			continue
		}
		if s.report(unreported) != nil {
			s.close()
			return
		}
		unreported = 0
	}
}

// report sends the peer how much data was delivered.
func (s *stream) report(n int) error {
	s.mu.Lock()
	s.queued -= n
	s.mu.Unlock()
	var header [headerSize]byte
	putHeader(header[:], kindReport, n)
	return s.write(header[:])
}

// next waits for data. It returns false if there will be no more, because the peer has ended and
// everything is delivered, or because the stream is closed.
func (s *stream) next() ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.ended && !s.closed {
		s.changed.Wait()
	}
	if s.closed || len(s.queue) == 0 {
		return nil, false
	}
	data := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	return data, true
}

func putHeader(b []byte, kind byte, n int) {
	binary.BigEndian.PutUint32(b, uint32(kind)<<24|uint32(n))
}
