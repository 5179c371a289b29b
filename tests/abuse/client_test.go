package abuse_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var clientAttacks = []attack{
	{name: "clients that vanish", run: disconnect},
	{name: "a client that does not read", run: readNothing},
}

// guestRequest returns the head of a raw request to a sandbox's guest.
func (b *testSandbox) guestRequest(method, path string) string {
	info := b.Info()
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n",
		method, path, info.ID, info.AccessToken)
}

// streamRequest returns a raw request that opens a stream of the guest.
func (b *testSandbox) streamRequest(path, message string) string {
	var frame bytes.Buffer
	frame.WriteByte(0)
	_ = binary.Write(&frame, binary.BigEndian, uint32(len(message))) // a buffer never fails
	frame.WriteString(message)
	return b.guestRequest("POST", path) + fmt.Sprintf("Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\nContent-Length: %d\r\n\r\n%s",
		frame.Len(), frame.String())
}

// shellRequest returns a raw request that runs a shell line and streams its output.
func (b *testSandbox) shellRequest(line string) string {
	return b.streamRequest("/process.Process/Start", fmt.Sprintf(`{"process":{"cmd":"sh","args":["-c",%q]},"stdin":false}`, line))
}

// disconnect closes connections in the middle of everything that takes time.
func disconnect(t *testing.T, b *testSandbox) {
	b.sh(t, "truncate -s 1G /tmp/large; mkdir -p /tmp/watched")
	half := strings.Repeat("x", 100_000)
	for name, text := range map[string]string{
		"upload":         b.guestRequest("POST", "/files?path=/tmp/half") + "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n" + half,
		"chunked upload": b.guestRequest("POST", "/files?path=/tmp/half2") + "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" + half,
		"download":       b.guestRequest("GET", "/files?path=/tmp/large") + "\r\n",
		"output":         b.shellRequest("while :; do echo output; sleep 0.01; done"),
		"watch":          b.streamRequest("/filesystem.Filesystem/WatchDir", `{"path":"/tmp/watched"}`),
		"exec":           fmt.Sprintf("POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 23\r\n\r\n{\"cmd\":[\"sleep\",\"601\"]}", b.ID(), b.environment.Key),
	} {
		var conns []*net.TCPConn
		for range 10 {
			conns = append(conns, b.environment.send(t, text))
		}
		// Downloads and streams have begun once data arrived.
		if name == "download" || name == "output" || name == "watch" {
			for _, conn := range conns {
				_ = conn.SetReadDeadline(hosttest.Deadline())
				if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
					t.Errorf("control: %s: %v", name, err)
				}
			}
		}
		for _, conn := range conns {
			_ = conn.SetLinger(0) // send a reset instead of a close
			conn.Close()
		}
	}
	// The server ends commands whose callers left.
	hosttest.EventuallyNoError(t, func() error {
		if n := b.sh(t, "pgrep -fc '^sleep 601' | cat"); n != "0" {
			return fmt.Errorf("%s commands still run after their callers left", n)
		}
		return nil
	})
	if got := b.sh(t, "echo still here"); got != "still here" {
		t.Errorf("echo after the attack: got %q", got)
	}
}

// readNothing starts commands that print without end and does not read their output. The server
// must limit what it buffers and make the commands wait.
func readNothing(t *testing.T, b *testSandbox) {
	var conns []*net.TCPConn
	for range 20 {
		conns = append(conns, b.environment.send(t, b.shellRequest("exec yes "+base64.StdEncoding.EncodeToString(make([]byte, 300)))))
	}
	before := b.environment.memory(t)
	time.Sleep(3 * time.Second) // gives the server time to grow
	if grown := b.environment.memory(t) - before; grown > 100<<20 {
		t.Errorf("the server grew by %d MiB for clients that do not read", grown>>20)
	}
	requireAnswer(t, b.Sandbox)
	for _, conn := range conns {
		conn.Close()
	}
}
