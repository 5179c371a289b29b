package client

import (
	"strings"

	"github.com/crannog/crannog/api"
)

// Hit returns the limit that a command ran into, as one of the values of api.ExecResult. Time and
// output are known. Disk, processes and memory of a live sandbox are recognised by the texts that
// the C library and the runtimes print for ENOSPC, EAGAIN and ENOMEM, and count only if the command
// failed. A shell that retries prints them at once and may still succeed. A program can print such
// texts as it likes: the result is a hint to a caller, and proves nothing.
func Hit(exit Exit, stderr string, truncated bool) string {
	said := func(words ...string) bool {
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
	case exit.Code != 0 && said("No space left on device", "ENOSPC", "Disk quota exceeded"):
		return api.HitDiskFull
	case said("fork: retry: Resource temporarily unavailable"), exit.Code != 0 && said("Cannot fork", "can't start new thread", "fork: Resource temporarily unavailable",
		"fork failed: resource temporarily unavailable", "BlockingIOError: [Errno 11]", "limit of processes is reached"):
		return api.HitPIDs
	case exit.Code != 0 && said("Cannot allocate memory", "MemoryError", "out of memory"):
		return api.HitOOM
	case truncated:
		return api.HitOutput
	}
	return api.HitNone
}

// tailSize is how much of the end of a stream is inspected. The reason for a failure is among a
// program's last output.
const tailSize = 16 << 10

// Tail keeps the end of a command's output, for Hit, at most twice tailSize. The zero value is
// ready for use.
type Tail struct{ kept []byte }

// Add adds the next piece, which it copies.
func (t *Tail) Add(data []byte) {
	data = data[max(0, len(data)-tailSize):]
	if len(t.kept)+len(data) > 2*tailSize {
		t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-(tailSize-len(data))):]...)
	}
	t.kept = append(t.kept, data...)
}

// String returns the end of the output.
func (t *Tail) String() string { return string(t.kept[max(0, len(t.kept)-tailSize):]) }
