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

// S3: clients without a key occupy all connections with requests that never end, from as many
// addresses as necessary. Some send a byte now and then, so that their connections are not silent.
func TestS3RequestsThatNeverEnd(t *testing.T) {
	f := newFloodedServer(t, floodFiles, floodSettings("1h"))
	const body = "Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n"
	requests := []struct{ head, slowPart string }{
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
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(stop)
	var conns []*net.TCPConn
	for i := range floodTotal {
		conn, err := f.dial(t, 10+i/floodPerAddress)
		if err != nil {
			t.Fatal(err)
		}
		request := requests[i%len(requests)]
		if _, err := io.WriteString(conn, request.head); err != nil {
			continue // the server has refused the connection
		}
		conns = append(conns, conn)
		writers.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					if _, err := io.WriteString(conn, request.slowPart); err != nil {
						return
					}
				}
			}
		})
	}
	// Control: this number occupies all connections, unless the server refused some at once.
	if len(conns) < floodTotal/2 {
		t.Errorf("control: got %d of %d requests begun, want at least half", len(conns), floodTotal)
	}
	hosttest.Eventually(t, "another client is answered", func() bool {
		status, _, err := f.health(t, 2)
		return err == nil && status == http.StatusOK
	})
	f.requireServing(t)
	requireClosedByServer(t, conns)
}
