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
	stdout    pieces
	stderr    pieces
}

// NewCollector keeps up to limit bytes.
func NewCollector(limit int64) *Collector { return &Collector{left: limit} }

// Stdout and Stderr return the writers to hand to Pump.
func (c *Collector) Stdout() io.Writer { return &half{c, &c.stdout} }

// Stderr is Stdout for the other stream.
func (c *Collector) Stderr() io.Writer { return &half{c, &c.stderr} }

type half struct {
	all *Collector
	to  *pieces
}

func (h *half) Write(p []byte) (int, error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	keep := min(int64(len(p)), h.all.left)
	h.all.left -= keep
	if keep < int64(len(p)) {
		h.all.truncated = true
	}
	h.to.add(p[:keep])
	return len(p), nil
}

// Result is the answer to a call that collects output.
func (c *Collector) Result(exit Exit) api.ExecResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	stderr := c.stderr.text()
	return api.ExecResult{
		ExitCode:  exit.Code,
		Stdout:    strings.ToValidUTF8(c.stdout.text(), "\uFFFD"),
		Stderr:    strings.ToValidUTF8(stderr, "\uFFFD"),
		Truncated: c.truncated,
		Hit:       Hit(exit, stderr, c.truncated),
	}
}
