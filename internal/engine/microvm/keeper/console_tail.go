package keeper

import (
	"strings"
	"sync"
)

// maxTail bounds the kept output of a machine's kernel and of QEMU.
const maxTail = 4 << 10

// tail is a writer that keeps only the end of the written text.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if excess := len(t.text) - maxTail; excess > 0 {
		t.text = append(t.text[:0], t.text[excess:]...)
	}
	return len(b), nil
}

// add writes a line.
func (t *tail) add(line string) { _, _ = t.Write([]byte(line + "\n")) } // it does not fail

// String returns the end as text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(string(t.text), "?"), "\r", ""))
}
