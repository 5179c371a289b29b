package abuse_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// The server of a flood test has few descriptors, so that a few hundred connections affect it as
// much as ten thousand would affect a usual server.
const (
	floodFiles      = 300 // descriptors of the server
	floodReserve    = 100
	floodTotal      = 60
	floodPerAddress = 12
)

// floodedServer is a server to which many clients without a key connect.
type floodedServer struct {
	*servetest.Server
	addr string
}

// newFloodedServer starts a server with a limited number of descriptors.
func newFloodedServer(t *testing.T, files int, settings map[string]string) *floodedServer {
	t.Helper()
	for name, value := range settings {
		t.Setenv("CRANNOG_"+name, value)
	}
	script := filepath.Join(t.TempDir(), "crannog")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", files, program)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	s := servetest.Start(t, script, t.TempDir())
	return &floodedServer{s, strings.TrimPrefix(s.URL, "http://")}
}

// floodSettings returns settings with small limits, so that few connections fill the server.
func floodSettings(idle string) map[string]string {
	return map[string]string{
		"MAX_CONNECTIONS": strconv.Itoa(floodTotal), "MAX_CONNECTIONS_PER_ADDRESS": strconv.Itoa(floodPerAddress),
		"RESERVED_DESCRIPTORS": strconv.Itoa(floodReserve), "IDLE_TIMEOUT": idle,
	}
}

// dial connects from 127.0.0.N, which acts as a client of its own. A connection that the server
// refuses at once may be reset before dial returns.
func (f *floodedServer) dial(t *testing.T, from int) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(from))}}
	conn, err := d.DialContext(t.Context(), "tcp", f.addr)
	if isReset(err) {
		return nil, err
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn), nil
}

const healthRequest = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

// health makes a request on a new connection, and returns its status and Retry-After.
func (f *floodedServer) health(t *testing.T, from int) (status int, after string, err error) {
	t.Helper()
	conn, err := f.dial(t, from)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, healthRequest); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), resp.Body.Close()
}

// countOpen counts the connections that the server has not closed.
func countOpen(t *testing.T, conns []*net.TCPConn) (n int) {
	t.Helper()
	raw := make([]byte, 1)
	for _, c := range conns {
		sc, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		if err := sc.Read(func(fd uintptr) bool {
			got, err := peek(int(fd), raw)
			closed = got == 0 && err == nil || isReset(err)
			return true
		}); err != nil {
			closed = true
		}
		if !closed {
			n++
		}
	}
	return n
}

// requireServing checks that the server still serves its local user, the database and the audit
// log, and has not run out of descriptors.
func (f *floodedServer) requireServing(t *testing.T) {
	t.Helper()
	made, err := f.Local(t).NewKey(hosttest.Context(t), "flood")
	if err != nil {
		t.Errorf("the local user cannot make a key: %v", err)
		return
	}
	if err := f.Local(t).RevokeKey(hosttest.Context(t), made.ID); err != nil {
		t.Errorf("the local user cannot revoke a key: %v", err)
	}
	if strings.Contains(f.Stderr(), "too many open files") {
		t.Errorf("the server ran out of descriptors:\n%.2000s", f.Stderr())
	}
}

// P49, S3: silent connections from one address are limited, and other addresses are answered.
func TestS3IdleConnections(t *testing.T) {
	f := newFloodedServer(t, floodFiles, floodSettings("5m"))
	var conns []*net.TCPConn
	for range 2 * floodFiles {
		if conn, err := f.dial(t, 1); err == nil {
			conns = append(conns, conn)
		}
	}
	// The flood also fills the places of refused connections that wait for their answer.
	hosttest.Eventually(t, "the address is answered, or asked to retry later", func() bool {
		status, after, err := f.health(t, 1)
		return err == nil && (status == http.StatusOK || status == http.StatusTooManyRequests && after != "")
	})
	hosttest.EventuallyAtMost(t, "open connections", floodPerAddress, func() int { return countOpen(t, conns) })
	if status, _, err := f.health(t, 2); err != nil || status != http.StatusOK {
		t.Errorf("another client is not answered: %d, %v", status, err)
	}
	f.requireServing(t)
	for _, c := range conns {
		c.Close()
	}
	hosttest.Eventually(t, "the address is served again", func() bool {
		status, _, err := f.health(t, 1)
		return err == nil && status == http.StatusOK
	})
}

// S3, attack 1: connections that were answered once and then idle as long as allowed. They come
// from so many addresses that they fill the server, but none exceeds its limit.
func TestS3IdleAfterAnswer(t *testing.T) {
	f := newFloodedServer(t, floodFiles, floodSettings("1h"))
	for i := range 2 * floodFiles {
		conn, err := f.dial(t, 10+i/floodPerAddress)
		if err == nil {
			_, err = io.WriteString(conn, healthRequest)
		}
		if err != nil {
			t.Fatalf("connection %d is refused, though others only idle: %v", i, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("connection %d is not served, though others only idle: %v", i, err)
		}
	}
	if status, _, err := f.health(t, 2); err != nil || status != http.StatusOK {
		t.Errorf("another client is not answered: %d, %v", status, err)
	}
	f.requireServing(t)
}

// S3, attack 2: clients do not read the answers to their requests. Such a connection never counts
// as idle, because the server waits until it can write.
func TestS3AnswersNotRead(t *testing.T) {
	f := newFloodedServer(t, floodFiles, floodSettings(hosttest.Patience(2*time.Second).String()))
	requests := []byte(strings.Repeat("GET /llms.txt HTTP/1.1\r\nHost: x\r\n\r\n", 1000))
	var group sync.WaitGroup
	for i := range floodTotal {
		conn, err := f.dial(t, 10+i/floodPerAddress)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for { // until the server closes the connection, or the deadline
				if _, err := conn.Write(requests); err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the server keeps a connection open that reads nothing")
					}
					return
				}
			}
		})
	}
	hosttest.Eventually(t, "another client is answered", func() bool {
		status, _, err := f.health(t, 2)
		return err == nil && status == http.StatusOK
	})
	f.requireServing(t)
	group.Wait()
}

// S3, attack 3: more connections than descriptors, if the settings allow that many. Each makes the
// server open another descriptor into a sandbox, whose program never completes its answer.
func TestS3ConnectionsIntoSandbox(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	const files = 1024 // starting a sandbox takes some hundreds
	f := newFloodedServer(t, files, map[string]string{"RESERVED_DESCRIPTORS": strconv.Itoa(files - floodFiles)})
	sb, err := f.Client(t).Create(t.Context(), crannog.Timeout(hosttest.Patience(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	// The program answers each request with only the head. It runs as an SDK would start a server.
	program := `
import socket, sys
s = socket.create_server(("127.0.0.1", 8080), backlog=1000)
print("ready", flush=True)
held = []
while True:
    c, _ = s.accept()
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    held.append(c)
`
	cmd := sb.CommandContext(t.Context(), "python3", "-c", program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("start the program in the sandbox: got %q, %v, want ready", line, err)
	}
	served := 0
	for i := range files {
		conn, err := f.dial(t, 10+i%100)
		if err != nil {
			continue
		}
		request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: 8080-%s.localhost\r\n\r\n", sb.ID())
		if _, err := io.WriteString(conn, request); err != nil {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is neither served nor refused", i)
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			served++
		}
	}
	if served < 10 {
		t.Errorf("got %d served connections, want at least 10 with these limits", served)
	}
	f.requireServing(t)
	res, err := sb.Exec(hosttest.Context(t), api.Exec{Cmd: []string{"true"}})
	if err == nil {
		t.Logf("a command through the server's TCP port: %+v", res)
	}
	local, err := f.Local(t).Get(hosttest.Context(t), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	requireAnswer(t, local)
	if err := local.Kill(hosttest.Context(t)); err != nil {
		t.Error(err)
	}
}
