package inside

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/sandbox"
)

// listFromHostileGuest requests a list of files from a guest that an attacker has replaced. The
// guest answers with the given data.
func listFromHostileGuest(t *testing.T, list []byte) *httptest.ResponseRecorder {
	t.Helper()
	l := &memoryListener{conns: make(chan net.Conn), done: make(chan struct{})}
	guest := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		body := list
		if path.Base(r.URL.Path) == "Stat" {
			body = []byte("\x0a\x06\x1a\x04/dir")
		}
		// A write error means that the client has left.
		_, _ = w.Write(body)
	})}
	served := make(chan error, 1)
	go func() { served <- guest.Serve(l) }()
	defer func() { guest.Close(); <-served }()
	x, err := New(Deps{
		Sandboxes: runningSandbox{}, Census: unusedServices{}, Audit: &audittest.Log{}, Log: slog.New(slog.DiscardHandler),
		Dial: func(context.Context, sandbox.Principal) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			return ours, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path+"box/files?path=/dir", http.NoBody)
	x.ServeSession(w, r, session.Session{ID: "c1", Scope: session.Viewer})
	return w
}

// TestHostileFileListIsLimited sends too many entries, and too large ones. An entry takes two bytes
// on the wire and hundreds in memory, so a small answer could exhaust the server's memory (P45).
func TestHostileFileListIsLimited(t *testing.T) {
	entry := []byte("\x0a\x03\x0a\x01a")
	for n, cut := range map[int]bool{3: false, maxEntries: false, maxEntries + 1: true, 2 * maxEntries: true} {
		w := listFromHostileGuest(t, bytes.Repeat(entry, n))
		text := w.Body.Bytes()
		if shown := bytes.Count(text, []byte(`"name":"a"`)); w.Code != http.StatusOK || shown != min(n, maxEntries) || bytes.Contains(text, []byte(`"cut":true`)) != cut {
			t.Errorf("%d entries: got status %d and %d shown", n, w.Code, shown)
		}
	}
	// Data after the limit is not read, so it need not be valid.
	if w := listFromHostileGuest(t, append(bytes.Repeat(entry, maxEntries+1), "\x0a\x02\x0a\x01\x0a\x01\xff"...)); w.Code != http.StatusOK {
		t.Errorf("invalid data after the limit: got %d %s, want 200", w.Code, w.Body)
	}
	manyFields := bytes.Repeat([]byte{0x5a, 0}, 100_001)
	w := listFromHostileGuest(t, append(fmt.Appendf(nil, "\x0a%s", []byte{0xc2, 0x9a, 0x0c}), manyFields...))
	if w.Code != http.StatusTooManyRequests && w.Code != http.StatusRequestEntityTooLarge || !bytes.Contains(w.Body.Bytes(), []byte("answer_too_large")) {
		t.Errorf("entry with too many fields: got %d %.200s", w.Code, w.Body)
	}
}
