package mcpserver

import (
	"bytes"
	"io"
	"strconv"
)

// stream passes on a program's output without the text that the shell prints at its end.
type stream struct {
	to   io.Writer
	end  string // that text, "" for no shell
	job  *job
	held []byte // may be the beginning of that text
}

// marker is the first and the last byte of that text.
const marker = 0x1e

func (s *stream) Write(p []byte) (int, error) {
	n := len(p)
	if s.end == "" {
		_, err := s.to.Write(p)
		return n, err
	}
	data := append(s.held, p...)
	s.held = nil
	start := append([]byte{marker}, s.end...)
	for len(data) > 0 {
		i := bytes.IndexByte(data, marker)
		if i < 0 {
			break
		}
		rest := data[i:]
		if !bytes.HasPrefix(rest, start) && !bytes.HasPrefix(start, rest) {
			if err := s.pass(data[:i+1]); err != nil {
				return 0, err
			}
			data = data[i+1:]
			continue
		}
		if err := s.pass(data[:i]); err != nil {
			return 0, err
		}
		k := bytes.IndexByte(rest[1:], marker)
		if k < 0 && len(rest) <= len(start)+maxCode {
			s.held = append(s.held, rest...)
			return n, nil
		}
		if k < 0 || !s.parseExit(rest[len(start):k+1]) {
			if err := s.pass(rest[:1]); err != nil {
				return 0, err
			}
			data = rest[1:]
			continue
		}
		data = rest[k+2:]
	}
	return n, s.pass(data)
}

// maxCode is the maximum length of what follows the name.
const maxCode = len(" 255 left") + 1

// parseExit parses what follows the name: a space, the code, and " left" if a process of the shell
// is still running in the background.
func (s *stream) parseExit(text []byte) bool {
	text, left := bytes.CutSuffix(bytes.TrimPrefix(text, []byte(" ")), []byte(" left"))
	code, err := strconv.ParseUint(string(text), 10, 8)
	if err != nil {
		return false
	}
	s.job.setExit(int(code), left)
	return true
}

func (s *stream) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := s.to.Write(p)
	return err
}

// flush passes on output that was held back when no more output follows.
func (s *stream) flush() {
	held := s.held
	s.held = nil
	_ = s.pass(held) // the buffer accepts all writes
}
