package process

import (
	"io"
	"strings"
	"sync"

	"github.com/crannog/crannog/api"
)

// Collector keeps output up to a limit over both streams and throws the rest
// away, so that a command that prints without end cannot fill our memory and
// still runs to its end.
type Collector struct {
	mu        sync.Mutex
	left      int64
	truncated bool
	stdout    strings.Builder
	stderr    strings.Builder
}

// NewCollector keeps up to limit bytes.
func NewCollector(limit int64) *Collector { return &Collector{left: limit} }

// Stdout and Stderr return the writers to hand to Pump.
func (c *Collector) Stdout() io.Writer { return &half{c, &c.stdout} }

// Stderr is Stdout for the other stream.
func (c *Collector) Stderr() io.Writer { return &half{c, &c.stderr} }

type half struct {
	all *Collector
	to  *strings.Builder
}

func (h *half) Write(p []byte) (int, error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	keep := min(int64(len(p)), h.all.left)
	h.all.left -= keep
	if keep < int64(len(p)) {
		h.all.truncated = true
	}
	h.to.Write(p[:keep])
	return len(p), nil
}

// Result is the answer to a call that collects output.
func (c *Collector) Result(exit Exit) api.ExecResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	stderr := c.stderr.String()
	return api.ExecResult{
		ExitCode:  exit.Code,
		Stdout:    strings.ToValidUTF8(c.stdout.String(), "\uFFFD"),
		Stderr:    strings.ToValidUTF8(stderr, "\uFFFD"),
		Truncated: c.truncated,
		Hit:       hit(exit, stderr, c.truncated),
	}
}

// hit names the limit that a command ran into. Time and output are known;
// disk, processes and memory of a living sandbox are told by the words that
// the C library and the runtimes print for ENOSPC, EAGAIN and ENOMEM, and
// count only if the command failed. A shell that tries again says so at once
// and may end well.
func hit(exit Exit, stderr string, truncated bool) string {
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
