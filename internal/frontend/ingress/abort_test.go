package ingress_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// endless sends a first chunk and then waits until the client leaves.
func endless(started chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		if started != nil {
			started <- struct{}{}
		}
		<-r.Context().Done()
	})
}

// TestStreamBreaksWhenSandboxEnds checks that the client of a stream gets an error, and not a
// complete response, when the sandbox ends (P11).
func TestStreamBreaksWhenSandboxEnds(t *testing.T) {
	w := newTestProxy(t)
	w.serve(boxID, 4000, endless(nil))
	res, err := w.front.Client().Do(w.request(t, 4000, "GET", "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 6)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first\n" {
		t.Fatalf("got first chunk %q, %v; want it at once", first, err)
	}
	w.kill(boxID)
	if rest, err := io.ReadAll(res.Body); err == nil {
		t.Fatalf("the stream ended without an error, after %q", rest)
	}
}

func TestPendingRequestFailsWhenSandboxEnds(t *testing.T) {
	w := newTestProxy(t)
	started := make(chan struct{}, 1)
	w.serve(boxID, 4000, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-r.Context().Done()
	}))
	done := make(chan answer, 1)
	go func() { done <- w.send(t, w.request(t, 4000, "POST", "/")) }()
	<-started
	w.kill(boxID)
	wantRefusal(t, <-done, map[string]any{"sandboxId": boxID, "message": "The sandbox was not found", "code": 502.0})
}

func TestUploadEndsWhenSandboxEnds(t *testing.T) {
	w := newTestProxy(t)
	started := make(chan struct{}, 1)
	w.serve(boxID, 4000, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		started <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	conn, reader := w.raw(t, "POST / HTTP/1.1\nHost: 4000-%s.x.y\nTransfer-Encoding: chunked\n\n")
	if _, err := io.WriteString(conn, "3\r\nabc\r\n"); err != nil {
		t.Fatal(err)
	}
	<-started // the proxy forwards the upload before it is complete
	w.kill(boxID)
	res, err := http.ReadResponse(reader, nil)
	if err != nil || res.StatusCode != http.StatusBadGateway || !res.Close {
		t.Fatalf("broken upload: got %+v, %v; want 502 and a closed connection", res, err)
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Fatalf("broken upload: the connection is not closed: %v", err)
	}
}

// raw sends raw bytes to the proxy.
func (w *testProxy) raw(t *testing.T, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, reader := w.dial(t)
	head := fmt.Sprintf(request, boxID)
	if _, err := io.WriteString(conn, strings.ReplaceAll(head, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn, reader
}

// dial opens a connection to the proxy.
func (w *testProxy) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", w.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// switcher switches the protocol and echoes all input.
func switcher(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
	_, _ = io.Copy(conn, rw)
}

const upgradeRequest = "GET /ws HTTP/1.1\nHost: 4000-%s.x.y\nConnection: Upgrade\nUpgrade: websocket\n\n"

func TestUpgradedConnectionIsResetWhenSandboxEnds(t *testing.T) {
	w := newTestProxy(t)
	w.serve(boxID, 4000, http.HandlerFunc(switcher))
	conn, reader := w.raw(t, upgradeRequest)
	res, err := http.ReadResponse(reader, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("upgrade: got %v, %v", res, err)
	}
	for _, text := range []string{"hello", "again"} {
		_, _ = io.WriteString(conn, text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != text {
			t.Fatalf("echo of %q: got %q, %v", text, got, err)
		}
	}
	w.kill(boxID)
	if _, err := reader.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("upgraded connection: got error %v, want a reset", err)
	}
}

func TestHTTP10ResponseIsResetWhenSandboxEnds(t *testing.T) {
	w := newTestProxy(t)
	started := make(chan struct{}, 1)
	w.serve(boxID, 4000, endless(started))
	_, reader := w.raw(t, "GET / HTTP/1.0\nHost: 4000-%s.x.y\n\n")
	<-started
	if res, err := http.ReadResponse(reader, nil); err != nil || res.StatusCode != 200 {
		t.Fatalf("answer: got %v, %v", res, err)
	}
	w.kill(boxID)
	if rest, err := io.ReadAll(reader); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("HTTP/1.0 response: got error %v after %q, want a reset", err, rest)
	}
}

// TestFullDuplex checks that a program can answer parts of a request before the request ends.
func TestFullDuplex(t *testing.T) {
	w := newTestProxy(t)
	w.serve(boxID, 4000, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		_ = rc.EnableFullDuplex()
		buffer := make([]byte, 16)
		for {
			n, err := r.Body.Read(buffer)
			_, _ = rw.Write(buffer[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	}))
	conn, reader := w.raw(t, "POST / HTTP/1.1\nHost: 4000-%s.x.y\nTransfer-Encoding: chunked\n\n")
	var res *http.Response
	for i := range 3 {
		_, _ = io.WriteString(conn, "2\r\nab\r\n")
		if i == 0 {
			var err error
			if res, err = http.ReadResponse(reader, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 2)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "ab" {
			t.Fatalf("round %d: %q, %v", i, got, err)
		}
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 {
		t.Errorf("after the end of the upload: got %q, %v; want nothing", rest, err)
	}
}

func TestResumedSandboxIsReachable(t *testing.T) {
	w := newTestProxy(t)
	w.kill(boxID)
	a := w.send(t, w.request(t, guestboot.Port, "GET", "/"))
	wantRefusal(t, a, map[string]any{"message": "The sandbox was not found", "code": 502.0})
	w.add(boxID, nil)
	w.serve(boxID, guestboot.Port, echo("reborn"))
	if a := w.send(t, w.request(t, guestboot.Port, "GET", "/")); a.Header.Get("X-Reached") != "reborn" {
		t.Errorf("request to the new sandbox: got %d %s", a.StatusCode, a.text)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	w := newTestProxy(t)
	for range 20 {
		w.send(t, w.request(t, guestboot.Port, "GET", "/"))
	}
	if n := w.dials.Load(); n != 1 {
		t.Errorf("got %d dials for 20 requests, want 1", n)
	}
}

func TestInvalidResponseIsBadGateway(t *testing.T) {
	w := newTestProxy(t)
	w.listen(boxID, 4000, func(l net.Listener) {
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "no http at all\r\n\r\n")
				conn.Close()
			}
		}()
	})
	a := w.send(t, w.request(t, 4000, "GET", "/"))
	wantRefusal(t, a, map[string]any{"sandboxId": boxID, "port": 4000.0, "code": 502.0})
}

// TestEndedSandboxesLeakNoGoroutines ends sandboxes with open streams.
func TestEndedSandboxesLeakNoGoroutines(t *testing.T) {
	w := newTestProxy(t)
	started := make(chan struct{}, 1000)
	w.send(t, w.request(t, guestboot.Port, "GET", "/")) // starts goroutines that stay
	w.front.Client().CloseIdleConnections()
	before := runtime.NumGoroutine()
	for round := range 20 {
		id := fmt.Sprintf("r%d", round)
		w.add(id, nil)
		w.serve(id, 4000, endless(started))
		var clients sync.WaitGroup
		for range 10 {
			r := w.request(t, 4000, "GET", "/")
			r.Header.Set("E2b-Sandbox-Id", id)
			clients.Go(func() {
				res, err := w.front.Client().Do(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		}
		for range 10 {
			<-started
		}
		w.kill(id)
		clients.Wait()
	}
	w.front.Client().CloseIdleConnections()
	// Each of the 20 servers inside keeps its accept loop until the test ends.
	hosttest.Eventually(t, "the goroutines of ended sandboxes end", func() bool { return runtime.NumGoroutine() <= before+20+2 })

	w.proxy.Close()
	a := w.send(t, w.request(t, guestboot.Port, "GET", "/"))
	wantRefusal(t, a, map[string]any{"message": "The sandbox was not found"})
}

func TestRequestIsCancelledWhenClientLeaves(t *testing.T) {
	w := newTestProxy(t)
	started := make(chan struct{}, 1)
	left := make(chan struct{}, 1)
	w.serve(boxID, 4000, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	conn, _ := w.raw(t, "GET / HTTP/1.1\nHost: 4000-%s.x.y\n\n")
	<-started
	conn.Close()
	select {
	case <-left:
	case <-hosttest.Late():
		t.Fatal("the request inside was not cancelled when its client left")
	}
}
