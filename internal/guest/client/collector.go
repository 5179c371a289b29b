package client

import (
	"io"
	"sync"

	"github.com/crannog/crannog/api"
)

// Collector stores a program's output up to a limit over both streams, and discards the rest. A
// command that prints without end thus cannot fill the server's memory, and still runs to its end.
type Collector struct {
	mu        sync.Mutex
	left      int64
	share     *Share
	truncated bool
	stdout    pieces
	stderr    pieces
}

// NewCollector returns a Collector that stores up to limit bytes.
func NewCollector(limit int64) *Collector { return NewCollectorIn(nil, limit) }

// NewCollectorIn returns a Collector that stores up to limit bytes and counts them against share.
func NewCollectorIn(share *Share, limit int64) *Collector {
	return &Collector{share: share, left: limit}
}

// Stdout returns a writer for the program's standard output.
func (c *Collector) Stdout() io.Writer { return &streamWriter{c, &c.stdout} }

// Stderr returns a writer for the program's standard error.
func (c *Collector) Stderr() io.Writer { return &streamWriter{c, &c.stderr} }

// streamWriter adds one output stream to a Collector.
type streamWriter struct {
	all *Collector
	to  *pieces
}

// Write implements io.Writer. It never fails.
func (h *streamWriter) Write(p []byte) (int, error) {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	store := h.all.share.take(min(int64(len(p)), h.all.left))
	h.all.left -= store
	if store < int64(len(p)) {
		// Only the beginning of the output is stored. Everything after a discarded piece is
		// discarded too.
		h.all.truncated, h.all.left = true, 0
	}
	h.all.share.adjust(h.to.add(p[:store]) - store)
	return len(p), nil
}

// Result returns the collected output as the answer to a call. It may be called only once, because
// it frees the buffers.
func (c *Collector) Result(exit Exit) api.ExecResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	stderr := c.stderr.text()
	return api.ExecResult{
		ExitCode:  exit.Code,
		Stdout:    c.stdout.text(),
		Stderr:    stderr,
		Truncated: c.truncated,
		Hit:       LimitHit(exit, stderr, c.truncated),
	}
}
