package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// errTooLarge is returned if a body exceeds what may be held during an approval.
var errTooLarge = errors.New("the body is longer than what can be held")

// errTooManyHeld is returned if other bodies of the sandbox use all the space.
var errTooManyHeld = errors.New("too many bodies are held at once")

// maxInMemory is the maximum number of bytes of one body that are held in memory.
const maxInMemory = 1 << 20

// heldBody is a body that was read to its end before the decision.
type heldBody struct {
	handler *Handler
	memory  []byte
	file    *os.File
	// fileless is set if no file can be created. The sandbox's limit then applies to memory.
	fileless bool
	size     int64
	taken    int64 // bytes that count against the sandbox's limit
	sum      hash.Hash
}

// holdBody reads a body. The approval covers its hash, so nothing of it is sent before all of it
// has arrived.
func (b *Handler) holdBody(r io.Reader) (*heldBody, error) {
	s := &heldBody{handler: b, sum: sha256.New()}
	buf := largeBuffers.Get().(*[largeBuffer]byte)
	defer largeBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			if werr := s.write(buf[:n]); werr != nil {
				s.Close()
				return nil, werr
			}
		}
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
}

func (s *heldBody) write(p []byte) error {
	if s.size+int64(len(p)) > s.handler.limits.Body {
		return errTooLarge
	}
	if s.handler.load.spooled.Add(int64(len(p))) > s.handler.limits.Spool {
		s.handler.load.spooled.Add(-int64(len(p)))
		return errTooManyHeld
	}
	s.taken += int64(len(p))
	s.sum.Write(p)
	if s.file == nil && !s.fileless && len(s.memory)+len(p) > maxInMemory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.size += int64(len(p))
	if s.file == nil {
		s.memory = append(s.memory, p...)
		return nil
	}
	if _, err := s.file.Write(p); err != nil {
		return fmt.Errorf("hold a body: %w", err)
	}
	return nil
}

// spill moves the held body to a file, if one can be created.
func (s *heldBody) spill() error {
	f, err := s.handler.spoolFile()
	if err != nil {
		s.fileless = true
		return nil
	}
	s.file = f
	if _, err := f.Write(s.memory); err != nil {
		return fmt.Errorf("hold a body: %w", err)
	}
	s.memory = nil
	return nil
}

// reader returns a reader that starts at the beginning of the body.
func (s *heldBody) reader() io.Reader {
	if s.file != nil {
		return io.NewSectionReader(s.file, 0, s.size)
	}
	return bytes.NewReader(s.memory)
}

func (s *heldBody) digest() string { return hex.EncodeToString(s.sum.Sum(nil)) }

// Close frees the space. It may be called more than once.
func (s *heldBody) Close() {
	s.handler.load.spooled.Add(-s.taken)
	s.taken, s.memory = 0, nil
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// unnamedFile creates a file that no other process can open and that disappears with its
// descriptor, even after a crash.
func unnamedFile() (*os.File, error) {
	fd, err := unix.Open(os.TempDir(), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), "spool"), nil
}

// counter counts the bytes that pass through a reader.
type counter struct {
	io.Reader
	n     *atomic.Int64
	count func(n int) error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	if n > 0 && c.count != nil {
		if stop := c.count(n); stop != nil {
			return 0, stop
		}
	}
	return n, err
}
