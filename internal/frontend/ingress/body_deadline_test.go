package ingress_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestLateBodyIsNotANewRequest checks a client that sends the body long after the response (request
// smuggling). The body is not parsed as the next request, and does not keep the connection open.
func TestLateBodyIsNotANewRequest(t *testing.T) {
	t.Parallel()
	w := newTestProxy(t)
	w.serve(boxID, 4000, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "early")
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.front.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 4000\r\nContent-Length: %d\r\n\r\n", boxID, len(smuggled))
	_ = conn.SetDeadline(hosttest.Deadline())
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body := make([]byte, 5); resp.StatusCode != http.StatusOK {
		t.Fatalf("control: %s", resp.Status)
	} else if _, err := io.ReadFull(resp.Body, body); err != nil || string(body) != "early" {
		t.Fatalf("control: %q %v", body, err)
	}
	// This waits for the end of the connection, not for the end of the response.
	rest, err := io.ReadAll(from)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		t.Fatal("the connection is still open, waiting for the body")
	}
	_, _ = io.WriteString(conn, smuggled) // the connection is closed, so this or the next read fails
	if more, _ := io.ReadAll(from); strings.Contains(string(rest)+string(more), "HTTP/1.1") {
		t.Errorf("the late body was answered: %q %q", rest, more)
	}
}
