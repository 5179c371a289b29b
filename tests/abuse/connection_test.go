package abuse_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var connectionAttacks = []attack{
	{name: "half-open connections", run: halfOpen},
	{name: "slow bodies", run: slowBodies},
}

// dial opens a connection to the server without a client library.
func (a *environment) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// send writes raw text on a new connection.
func (a *environment) send(t *testing.T, text string) *net.TCPConn {
	t.Helper()
	conn := a.dial(t)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends a raw request and returns the answer and its body.
func (a *environment) exchange(t *testing.T, text string) (*http.Response, string) {
	t.Helper()
	conn := a.send(t, text)
	defer conn.Close()
	if err := conn.SetDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read the answer to %.200q: %v", text, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer's body to %.200q: %v", text, err)
	}
	return resp, string(body)
}

// requireClosedByServer asserts that the server closes connections by itself.
func requireClosedByServer(t *testing.T, conns []*net.TCPConn) {
	t.Helper()
	deadline := hosttest.Deadline()
	var group sync.WaitGroup
	isOpen := make([]bool, len(conns))
	for i, conn := range conns {
		group.Go(func() {
			_ = conn.SetReadDeadline(deadline)
			received, err := io.ReadAll(conn)
			if isOpen[i] = errors.Is(err, os.ErrDeadlineExceeded); isOpen[i] {
				t.Logf("connection %d is still open; it received %.300q", i, received)
			}
		})
	}
	group.Wait()
	n := 0
	for _, open := range isOpen {
		if open {
			n++
		}
	}
	if n > 0 {
		t.Errorf("%d of %d connections are still open", n, len(conns))
	}
}

// halfOpen opens connections that send nothing, or never complete a request.
func halfOpen(t *testing.T, b *testSandbox) {
	var conns []*net.TCPConn
	for i := range 500 {
		switch i % 4 {
		case 0:
			conns = append(conns, b.environment.dial(t))
		case 1:
			conns = append(conns, b.environment.send(t, "GET /sandb"))
		case 2:
			conns = append(conns, b.environment.send(t, "GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nX-Api-Key: "))
		default:
			conns = append(conns, b.environment.send(t, fmt.Sprintf("POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\n", b.ID())))
		}
	}
	stop := make(chan struct{})
	var slowWriter sync.WaitGroup
	slowWriter.Go(func() { // single bytes must not count as progress
		for _, conn := range conns {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = conn.Write([]byte("x")) // the server may have closed it, as it should
			}
		}
	})
	requireAnswer(t, b.Sandbox)
	requireClosedByServer(t, conns)
	close(stop)
	slowWriter.Wait()
}

// slowBodies announces a request body at every endpoint, without a valid key or token, and does not
// send it.
func slowBodies(t *testing.T, b *testSandbox) {
	var conns []*net.TCPConn
	for _, head := range []string{
		"POST /sandboxes HTTP/1.1\r\nHost: x\r\n",
		"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\n",
		"POST /nowhere HTTP/1.1\r\nHost: x\r\n",
		"POST /files?path=x HTTP/1.1\r\nHost: x\r\n",
		"POST /files HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: " + strings.Repeat("a", 20) + "\r\nE2b-Sandbox-Port: 49983\r\n",
		"POST /files HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: " + b.ID() + "\r\nE2b-Sandbox-Port: 49983\r\n",
		"POST /process.Process/List HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: " + b.ID() + "\r\nE2b-Sandbox-Port: 49983\r\n",
		"POST /_crannog/update HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: " + b.ID() + "\r\nE2b-Sandbox-Port: 49983\r\n",
	} {
		for range 5 {
			conns = append(conns, b.environment.send(t, head+"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"))
			conns = append(conns, b.environment.send(t, head+"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"))
		}
	}
	requireAnswer(t, b.Sandbox)
	requireClosedByServer(t, conns)
}
