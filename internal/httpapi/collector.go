package httpapi

import (
	"io"
	"strings"
	"sync"

	"github.com/crannog/crannog/api"
)

// collector keeps output up to a limit over both streams and throws the rest
// away, so that a command that prints without end cannot fill our memory and
// still runs to its end.
type collector struct {
	mu        sync.Mutex
	left      int64
	truncated bool
	stdout    strings.Builder
	stderr    strings.Builder
}

func newCollector(limit int64) *collector { return &collector{left: limit} }

// stream returns a writer to one of the collector's builders.
func (c *collector) stream(b *strings.Builder) io.Writer { return &half{c, b} }

type half struct {
	all *collector
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

func (c *collector) result() api.ExecResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	return api.ExecResult{
		Stdout:    strings.ToValidUTF8(c.stdout.String(), "\uFFFD"),
		Stderr:    strings.ToValidUTF8(c.stderr.String(), "\uFFFD"),
		Truncated: c.truncated,
	}
}
