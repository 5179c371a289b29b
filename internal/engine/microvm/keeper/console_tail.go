package keeper

import (
	"strings"
	"sync"
)

// maxWords is how much is kept of what a machine's kernel and its program print.
const maxWords = 4 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - maxWords; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

func (t *tail) add(line string) { _, _ = t.Write([]byte(line + "\n")) } // it does not fail

// String returns the end as text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(string(t.text), "?"), "\r", ""))
}
