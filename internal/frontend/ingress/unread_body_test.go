package ingress_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/frontend/ingress"
)

// TestUnreadBodyLeavesConnectionUsable checks that, on a reused connection, the rest of an unread
// body is not parsed as the next request.
func TestUnreadBodyLeavesConnectionUsable(t *testing.T) {
	w := newTestProxy(t)
	w.add("i0000000000000000009", nil)
	var logged safeBuffer
	front := httptest.NewUnstartedServer(w.proxy)
	front.Config.ErrorLog = log.New(&logged, "", 0)
	front.Start()
	defer front.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				for _, size := range []int{10, 5000, 300 << 10} {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/x", bytes.NewReader(make([]byte, size)))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set(ingress.IDHeader, "i0000000000000000009")
					req.Header.Set(ingress.PortHeader, "49983") // nothing listens there
					resp, err := front.Client().Do(req)
					if err != nil {
						if size < 300<<10 { // a large body may be cut off while it is sent
							t.Errorf("%d bytes: %v", size, err)
						}
						continue
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if resp.StatusCode != http.StatusBadGateway {
						t.Errorf("%d bytes: %s", size, resp.Status)
					}
				}
			}
		})
	}
	wg.Wait()
	if text := logged.String(); strings.Contains(text, "panic") {
		t.Errorf("the server panicked: %.1800s", text)
	}
}

// safeBuffer is a buffer for concurrent use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
