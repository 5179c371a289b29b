package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// hostileFrame returns a yamux frame.
func hostileFrame(kind byte, flags uint16, stream uint32, data []byte, length uint32) []byte {
	h := make([]byte, sessionHeader, sessionHeader+len(data))
	h[typeAt] = kind
	binary.BigEndian.PutUint16(h[flagsAt:], flags)
	binary.BigEndian.PutUint32(h[4:], stream)
	binary.BigEndian.PutUint32(h[lengthAt:], length)
	return append(h, data...)
}

// hostileGuest answers the greeting and then writes 1 MiB of the same frame without reading.
func hostileGuest(t *testing.T, f *fifo, frame []byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g := &guestEnd{pipes: pipes{read: f.fromHost, write: f.toHost}}
		nonce, err := g.waitForGreeting()
		if err != nil {
			return
		}
		if _, err := f.toHost.Write(nonce); err != nil {
			return
		}
		many := bytes.Repeat(frame, 1+(32<<10)/len(frame))
		for range 32 {
			if _, err := f.toHost.Write(many); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		f.toHost.Close()
		f.fromHost.Close()
		<-done
	})
}

// P45: a frame that a genuine guest never sends ends the session at once. Otherwise a hostile guest
// could fill the memory of the host.
func TestHostileGuestEndsItsSession(t *testing.T) {
	for name, frame := range map[string][]byte{
		"pings":            hostileFrame(typePing, flagOpen, 0, nil, 7),
		"ping answers":     hostileFrame(typePing, 2, 0, nil, 7),
		"stream":           hostileFrame(1, flagOpen, 2, nil, 0),
		"stream with data": hostileFrame(typeData, flagOpen, 2, make([]byte, 1000), 1000),
		"unknown type":     hostileFrame(9, 0, 0, nil, 0),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFifo(t)
			c := host(t, f)
			before := runtime.NumGoroutine()
			hostileGuest(t, f, frame)
			ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
			defer cancel()
			if conn, err := c.Dial(ctx, 1); err == nil {
				conn.Close()
				t.Error("a stream was opened")
			}
			if ctx.Err() != nil {
				t.Error("the session did not end")
			}
			if !c.Broken() {
				t.Error("the channel is not broken")
			}
			hosttest.EventuallyAtMost(t, "goroutines", before+100, runtime.NumGoroutine)
		})
	}
}

// chopped reads at most step bytes at a time.
type chopped struct {
	net.Conn
	all  *bytes.Reader
	step int
}

func (c chopped) Read(b []byte) (int, error) { return c.all.Read(b[:min(len(b), c.step)]) }

// Frames of a genuine guest pass unchanged, in pieces of any size. Data may look like a forbidden
// header.
func TestGuardPassesFrames(t *testing.T) {
	inner := hostileFrame(typePing, flagOpen, 0, nil, 0)
	good := bytes.Join([][]byte{
		hostileFrame(1, 2, 1, nil, 4096), // a stream is accepted
		hostileFrame(typeData, 0, 1, inner, uint32(len(inner))),
		hostileFrame(typeData, 0, 1, nil, 0),
		hostileFrame(1, 8, 1, nil, 0),
		hostileFrame(3, 0, 0, nil, 0),
	}, nil)
	for step := 1; step <= len(good)+len(inner); step++ {
		read := func(text []byte) ([]byte, error) {
			return io.ReadAll(&guard{Conn: chopped{all: bytes.NewReader(text), step: step}})
		}
		if got, err := read(good); err != nil || !bytes.Equal(got, good) {
			t.Fatalf("pieces of %d: got %d of %d bytes, %v", step, len(got), len(good), err)
		}
		if got, err := read(append(bytes.Clone(good), inner...)); !errors.Is(err, errGuest) || !bytes.HasPrefix(good, got[:min(len(got), len(good))]) {
			t.Fatalf("pieces of %d: got %d bytes, %v, want errGuest", step, len(got), err)
		}
	}
}

// FuzzGuard checks that the guard fails exactly if there is a frame that is not allowed, in pieces
// of any size.
func FuzzGuard(f *testing.F) {
	f.Add(hostileFrame(typeData, 0, 1, []byte("data"), 4), byte(3))
	f.Add(hostileFrame(typePing, flagOpen, 0, nil, 0), byte(1))
	f.Fuzz(func(t *testing.T, text []byte, step byte) {
		want := true
		for rest := text; len(rest) >= sessionHeader; {
			flags := binary.BigEndian.Uint16(rest[flagsAt:])
			if rest[typeAt] == typePing || rest[typeAt] > typeLast || flags&flagOpen != 0 {
				want = false
				break
			}
			skip := uint64(sessionHeader)
			if rest[typeAt] == typeData {
				skip += uint64(binary.BigEndian.Uint32(rest[lengthAt:]))
			}
			rest = rest[min(skip, uint64(len(rest))):]
		}
		_, err := io.ReadAll(&guard{Conn: chopped{all: bytes.NewReader(text), step: int(step) + 1}})
		if (err == nil) != want {
			t.Errorf("guard: got %v, want success: %t", err, want)
		}
	})
}
