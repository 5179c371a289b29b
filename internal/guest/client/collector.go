package client

import (
	"io"
	"sync"

	"github.com/crannog/crannog/api"
)

// Collector keeps output up to a limit over both streams and drops the rest, so that a command that
// prints without end cannot fill our memory and still runs to its end.
type Collector struct {
	mu        sync.Mutex
	left      int64
	share     *Share
	truncated bool
	stdout    pieces
	stderr    pieces
}

// NewCollector keeps up to limit bytes.
func NewCollector(limit int64) *Collector { return NewCollectorIn(nil, limit) }

// NewCollectorIn keeps up to limit bytes, and no more than there is room for.
func NewCollectorIn(share *Share, limit int64) *Collector {
	return &Collector{share: share, left: limit}
}

// Stdout returns the writer for Pump's standard output.
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
	keep := h.all.share.take(min(int64(len(p)), h.all.left))
	h.all.left -= keep
	if keep < int64(len(p)) {
		// Only the beginning is kept: after a dropped piece nothing more is kept.
		h.all.truncated, h.all.left = true, 0
	}
	h.all.share.more(h.to.add(p[:keep]) - keep)
	return len(p), nil
}

// Result returns the answer to a call that collects output. It is called once, because it frees the
// kept output while it makes the text.
func (c *Collector) Result(exit Exit) api.ExecResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	stderr := c.stderr.text()
	return api.ExecResult{
		ExitCode:  exit.Code,
		Stdout:    c.stdout.text(),
		Stderr:    stderr,
		Truncated: c.truncated,
		Hit:       Hit(exit, stderr, c.truncated),
	}
}
