package qmp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// connected returns two connected sockets.
func connected(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// play sends the greeting, and the next answer after each command.
func play(t *testing.T, theirs *net.UnixConn, answers ...string) {
	t.Helper()
	go func() {
		_, _ = theirs.Write([]byte(`{"QMP": {"version": {}}}` + "\n"))
		commands := bufio.NewScanner(theirs)
		for _, answer := range answers {
			if !commands.Scan() {
				return
			}
			_, _ = theirs.Write([]byte(answer + "\n"))
		}
	}()
}

const none = `{"return": {}}`

func TestExecute(t *testing.T) {
	ours, theirs := connected(t)
	play(t, theirs, none, `{"event": "STOP", "timestamp": {}}`+"\n"+`{"return": {"status": "paused"}}`, `{"error": {"class": "GenericError", "desc": "no"}}`, none)
	ctx := hosttest.Context(t)
	c, err := New(ctx, ours)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Execute(ctx, "query-status", nil, -1); err != nil || string(got) != `{"status": "paused"}` {
		t.Errorf("got %s, %v", got, err)
	}
	_, err = c.Execute(ctx, "cont", nil, -1)
	if _, refused := errors.AsType[*Error](err); !refused || !strings.Contains(err.Error(), "no") {
		t.Errorf("got %v, want QEMU's error", err)
	}
	if _, err := c.Execute(ctx, "cont", nil, -1); err != nil {
		t.Errorf("after QEMU's error, the client is not usable: %v", err)
	}
}

// A QEMU that is taken over can neither fill the memory of its keeper nor keep it waiting.
func TestHostileAnswersEndTheClient(t *testing.T) {
	for name, answer := range map[string]string{
		"no JSON": "x", "two kinds": `{"return": {}, "event": "STOP"}`, "no kind": `{}`, "another type": `{"return": {}, "error": 7}`,
		"too long": `{"return": "` + strings.Repeat("x", maxMessage) + `"}`, "too many events": strings.Repeat(`{"event": "STOP"}`+"\n", maxEvents+1),
	} {
		ours, theirs := connected(t)
		play(t, theirs, none, answer, none)
		ctx := hosttest.Context(t)
		c, err := New(ctx, ours)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.Execute(ctx, "query-status", nil, -1); !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: got %v, want ErrProtocol", name, err)
			}
		}
	}
}

func TestExecuteEndsWithItsContext(t *testing.T) {
	ours, theirs := connected(t)
	play(t, theirs, none)
	c, err := New(hosttest.Context(t), ours)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller has left")
	go func() {
		_, _ = theirs.Read(make([]byte, 1)) // the command has arrived, and is never answered
		cancel(cause)
	}()
	if _, err := c.Execute(ctx, "stop", nil, -1); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte(none + "\n"))
	f.Add([]byte(`{"QMP": {"version": {}}, "x": 1}` + "\n"))
	f.Add([]byte(`{"error": {"class": "x", "desc": "y"}}` + "\n"))
	f.Add([]byte(`{"event": "STOP"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(data), maxMessage)
		for {
			m, err := readMessage(r)
			if err != nil {
				return
			}
			if m.Greeting == nil && !m.isEvent() && m.Return == nil && m.Error == nil {
				t.Errorf("a message without a kind: %+v", m)
			}
		}
	})
}
