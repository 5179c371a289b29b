package ingress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestEndOfSandboxKeepsConnectionUsable checks that a sandbox that ends together with its response
// does not break the client's connection. The next request on the connection may be for another
// sandbox.
func TestEndOfSandboxKeepsConnectionUsable(t *testing.T) {
	w := newTestProxy(t)
	var conn net.Conn
	var reader *bufio.Reader
	// post sends a request and reads the response, if there is one.
	post := func(id, body string) (string, error) {
		host := fmt.Sprintf("3000-%s.x.y", id)
		if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body); err != nil {
			return "", err
		}
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(res.Body)
		if err == nil && res.Close {
			err = io.EOF
		}
		return string(got), err
	}
	completed := 0
	for i := range 1000 {
		if conn == nil {
			conn, reader = w.dial(t)
		}
		id := fmt.Sprintf("i1%018d", i)
		w.add(id, nil)
		w.serve(id, 3000, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(rw, r.Body)
			go func() {
				for until := time.Now().Add(time.Duration(i%300) * time.Microsecond); time.Now().Before(until); {
				}
				w.kill(id)
			}()
		}))
		if got, err := post(id, "first"); err != nil || got != "first" {
			// The sandbox ended before its response had ended.
			_ = conn.Close()
			conn = nil
			continue
		}
		completed++
		if got, err := post(boxID, "second"); err != nil || !strings.HasSuffix(got, "second") {
			t.Fatalf("after %d complete responses of ended sandboxes, a request to another sandbox got %q, %v", completed, got, err)
		}
	}
	if completed == 0 {
		t.Error("no response was complete, so the test proves nothing")
	}
}
