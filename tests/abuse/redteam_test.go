package abuse_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// S3, written without knowledge of the fix: strangers occupy all connections of the server with
// requests that never end, from as many addresses as necessary. Some send a byte now and then, so
// that their connections are not silent.
func TestS3RedTeam(t *testing.T) {
	f := newFlooded(t, floodFiles, floodSettings("1h"))
	const body = "Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n"
	kinds := []struct{ head, drip string }{
		{"POST /console/api/session HTTP/1.1\r\nHost: x\r\n" + body + "{", " "},
		{"POST /mcp HTTP/1.1\r\nHost: x\r\n" + body + "{", " "},
		{"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + body, ""},
		{"POST /sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"},
		{"PUT /nowhere HTTP/1.1\r\nHost: x\r\n" + body, "x"},
		{"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ", "x"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00"},
		{"GET /console/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "x"},
		{"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", "x"},
		{"POST /files HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: iaaaaaaaaaaaaaaaaaaa\r\nE2b-Sandbox-Port: 49983\r\n" + body, "x"},
	}
	stop := make(chan struct{})
	var drip sync.WaitGroup
	defer drip.Wait()
	defer close(stop)
	var conns []*net.TCPConn
	for i := range floodTotal {
		conn, err := f.dial(t, 10+i/floodPerAddress)
		if err != nil {
			t.Fatal(err)
		}
		kind := kinds[i%len(kinds)]
		if _, err := io.WriteString(conn, kind.head); err != nil {
			continue // it was refused already
		}
		conns = append(conns, conn)
		drip.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					if _, err := io.WriteString(conn, kind.drip); err != nil {
						return
					}
				}
			}
		})
	}
	// Control: this number does occupy all connections, unless some were refused at once.
	if len(conns) < floodTotal/2 {
		t.Errorf("only %d of %d requests were begun", len(conns), floodTotal)
	}
	hosttest.Eventually(t, "another client is answered", func() bool {
		status, _, err := f.health(t, 2)
		return err == nil && status == http.StatusOK
	})
	f.requireServing(t)
	requireClosedByServer(t, conns)
}
