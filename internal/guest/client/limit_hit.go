package client

import (
	"strings"

	"github.com/crannog/crannog/api"
)

// LimitHit returns the limit that a command exceeded, as one of the values of api.ExecResult, or
// "". Time and output limits are known for certain. Limits of disk, processes and memory are
// recognised by the messages that the C library and language runtimes print for ENOSPC, EAGAIN and
// ENOMEM, and only if the command failed: a shell prints such messages and may still succeed when
// it retries. Any program can print these messages, so the result is only a hint for the caller.
func LimitHit(exit Exit, stderr string, truncated bool) string {
	contains := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(stderr, w) {
				return true
			}
		}
		return false
	}
	switch {
	case exit.TimedOut:
		return api.HitTimeout
	case exit.Code != 0 && contains("No space left on device", "ENOSPC", "Disk quota exceeded"):
		return api.HitDiskFull
	case contains("fork: retry: Resource temporarily unavailable"), exit.Code != 0 && contains("Cannot fork", "can't start new thread", "fork: Resource temporarily unavailable",
		"fork failed: resource temporarily unavailable", "BlockingIOError: [Errno 11]", "limit of processes is reached"):
		return api.HitPIDs
	case exit.Code != 0 && contains("Cannot allocate memory", "MemoryError", "out of memory"):
		return api.HitOOM
	case truncated:
		return api.HitOutput
	}
	return api.HitNone
}

// tailSize is the number of bytes at the end of a stream that LimitHit searches. The reason for a
// failure is usually among the last lines.
const tailSize = 16 << 10

// Tail stores the end of a command's output for LimitHit, at most twice tailSize. The zero value is
// ready for use.
type Tail struct{ buf []byte }

// Add appends a copy of data.
func (t *Tail) Add(data []byte) {
	data = data[max(0, len(data)-tailSize):]
	if len(t.buf)+len(data) > 2*tailSize {
		t.buf = append(t.buf[:0], t.buf[max(0, len(t.buf)-(tailSize-len(data))):]...)
	}
	t.buf = append(t.buf, data...)
}

// String returns the end of the output.
func (t *Tail) String() string { return string(t.buf[max(0, len(t.buf)-tailSize):]) }
