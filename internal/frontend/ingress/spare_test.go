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

// A connection serves many sandboxes, one request after the other. A sandbox that ends together
// with its response must not end the connection under the next request, which is for another
// sandbox: its client would get an error, and the request that ends a program's input would be
// lost.
func TestASandboxThatGoesSparesTheNextRequest(t *testing.T) {
	w := newTestProxy(t)
	var conn net.Conn
	var reader *bufio.Reader
	// ask sends a request and reads its answer, if it has one.
	ask := func(id, body string) (string, error) {
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
	whole := 0
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
		if got, err := ask(id, "first"); err != nil || got != "first" {
			// The sandbox ended before its response had ended.
			_ = conn.Close()
			conn = nil
			continue
		}
		whole++
		if got, err := ask(boxID, "second"); err != nil || !strings.HasSuffix(got, "second") {
			t.Fatalf("after %d whole answers of sandboxes that went, another one's request gets %q, %v", whole, got, err)
		}
	}
	if whole == 0 {
		t.Error("no answer was whole, so nothing was asked after one")
	}
}
