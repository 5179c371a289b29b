package interpreter

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	// chunkBytes limits one piece of text, so that output without newlines needs only this much
	// memory.
	chunkBytes = 32 << 10
	// lineDelay and partialDelay are how long complete and incomplete lines are buffered. Programs
	// often write a line in several pieces, which the delay joins.
	lineDelay    = 2 * time.Millisecond
	partialDelay = 20 * time.Millisecond
	// drainBytes is the maximum that a pipe can hold. Draining more would never end while a
	// background process writes.
	drainBytes = 1 << 20
)

// output reads one output stream of a worker. Without an execution, output is discarded, so that a
// thread that prints between executions never blocks.
type output struct {
	file *os.File
	conn syscall.RawConn
	emit func(text []byte)

	mu    sync.Mutex
	buf   []byte
	first time.Time // arrival of the oldest byte in buf
	ended bool
}

func newOutput(file *os.File, emit func([]byte)) (*output, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &output{file: file, conn: conn, emit: emit, buf: make([]byte, 0, chunkBytes)}, nil
}

// readAll reads until the end of the stream or until the file is closed.
func (o *output) readAll() {
	for {
		if err := o.file.SetReadDeadline(o.deadline()); err != nil {
			return
		}
		ended := false
		err := o.conn.Read(func(fd uintptr) bool {
			n, end := o.take(int(fd))
			ended = end
			return n > 0 || end
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.flushRunes()
			continue
		}
		if err != nil || ended {
			o.flush()
			return
		}
	}
}

// drain passes on everything that was written before the call.
func (o *output) drain() {
	// Use Control instead of Read, because readAll holds Read's lock. An error means that the file
	// is closed and has no more data.
	_ = o.conn.Control(func(fd uintptr) {
		for total := 0; total < drainBytes; {
			n, end := o.take(int(fd))
			if n <= 0 || end {
				return
			}
			total += n
		}
	})
	o.flush()
}

// take reads available data without blocking. It returns 0, false if there is none.
func (o *output) take(fd int) (n int, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return 0, true
	}
	if len(o.buf) == cap(o.buf) {
		o.send(o.buf[:wholeRunes(o.buf)])
	}
	for {
		n, err := syscall.Read(fd, o.buf[len(o.buf):cap(o.buf)])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return 0, false
		case err != nil || n == 0:
			o.ended = true
			return 0, true
		}
		if len(o.buf) == 0 {
			o.first = time.Now()
		}
		o.buf = o.buf[:len(o.buf)+n]
		return n, false
	}
}

// deadline returns when buffered text is passed on even if no more text arrives.
func (o *output) deadline() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buf) == 0 {
		return time.Time{}
	}
	if o.buf[len(o.buf)-1] == '\n' {
		return o.first.Add(lineDelay)
	}
	return o.first.Add(partialDelay)
}

// flush passes on all buffered text.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send(o.buf)
}

// flushRunes passes on the buffered text except an incomplete character at its end.
func (o *output) flushRunes() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send(o.buf[:wholeRunes(o.buf)])
}

// send passes on text, which is the beginning of buf, and leaves the rest in the buffer. o.mu must
// be held.
func (o *output) send(text []byte) {
	if len(text) == 0 {
		return
	}
	o.emit(text)
	rest := copy(o.buf[:cap(o.buf)], o.buf[len(text):])
	o.buf = o.buf[:rest]
	o.first = time.Now()
}

// wholeRunes returns the length of b without an incomplete rune at its end, so that a chunk
// boundary never splits a character.
func wholeRunes(b []byte) int {
	for i := 1; i <= utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-i:]) || i == len(b) {
				return len(b)
			}
			return len(b) - i
		}
	}
	return len(b)
}
