package attachment_test

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// reversed answers a query with its bytes in reverse order.
func reversed(query []byte, max int) []byte {
	out := make([]byte, 0, len(query))
	for i := range query {
		out = append(out, query[len(query)-1-i])
	}
	return out[:min(len(out), max)]
}

func TestNamesOverUDP(t *testing.T) {
	_, b := open(t, &handler{names: reversed}, attachment.Options{})
	for _, server := range []string{"10.199.0.1:53", "8.8.8.8:53", "169.254.169.254:53"} {
		c := b.dialUDP(t, server)
		// Two questions on one socket, as a resolver asks for A and AAAA.
		for _, q := range []string{"abc", "defg"} {
			if _, err := c.Write([]byte(q)); err != nil {
				t.Fatal(err)
			}
		}
		got := make(map[string]bool)
		for range 2 {
			_ = c.SetReadDeadline(hosttest.Deadline())
			buffer := make([]byte, 512)
			n, err := c.Read(buffer)
			if err != nil {
				t.Fatalf("read an answer of %s: %v", server, err)
			}
			got[string(buffer[:n])] = true
		}
		if !got["cba"] || !got["gfed"] {
			t.Errorf("%s answered %v, want cba and gfed", server, got)
		}
	}
}

func TestNamesOverTCP(t *testing.T) {
	_, b := open(t, &handler{names: reversed}, attachment.Options{})
	c := b.mustDial(t, "8.8.8.8:53")
	for _, q := range []string{"abc", strings.Repeat("x", 3000)} {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		reply := make([]byte, 2+len(q))
		if _, err := io.ReadFull(c, reply); err != nil || string(reply[2:]) != string(reversed([]byte(q), 1<<16)) {
			t.Fatalf("reply %q %v, want the reversed query", reply, err)
		}
	}
}

func TestUnansweredQueryGetsNoReply(t *testing.T) {
	asked := make(chan struct{}, 1)
	l, b := open(t, &handler{names: func([]byte, int) []byte { asked <- struct{}{}; return nil }}, attachment.Options{})
	c := b.dialUDP(t, "8.8.8.8:53")
	_, _ = c.Write([]byte("q"))
	<-asked
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(make([]byte, 10)); err == nil {
		t.Errorf("got a reply of %d bytes, want none", n)
	}
	if n := l.Counts().Names; n != 0 {
		t.Errorf("%d answered queries counted, want 0", n)
	}
}

func TestNamesPerSecondAreLimited(t *testing.T) {
	var asked atomic.Int64
	l, b := open(t, &handler{names: func([]byte, int) []byte { asked.Add(1); return nil }}, attachment.Options{NamesPerSecond: 10})
	c := b.dialUDP(t, "8.8.8.8:53")
	started := time.Now()
	const sent = 400
	for range sent {
		_, _ = c.Write([]byte("q"))
	}
	// Each received query is answered or dropped.
	hosttest.Eventually(t, "each query is asked or dropped", func() bool { return uint64(asked.Load())+l.Counts().Dropped >= sent })
	limit := 20 + int64(time.Since(started).Seconds()*10) + 1
	if n := asked.Load(); n == 0 || n > limit {
		t.Errorf("%d queries reached the handler, want 1 to %d", n, limit)
	}
	if n := l.Counts().Dropped; n < sent-uint64(limit) {
		t.Errorf("%d queries dropped, want at least %d", n, sent-uint64(limit))
	}
}

// Queries beyond the maximum number of concurrent ones are dropped, and do not block later queries.
func TestBurstDoesNotBlockLaterQueries(t *testing.T) {
	const places = 32
	var asked atomic.Int64
	held := make(chan struct{})
	l, b := open(t, &handler{names: func(query []byte, max int) []byte {
		if asked.Add(1) <= places {
			<-held
		}
		return reversed(query, max)
	}}, attachment.Options{})
	c := b.dialUDP(t, "8.8.8.8:53")
	const burst = 2 * places
	for range burst {
		if _, err := c.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Eventually(t, "the handler is busy with the maximum and the other queries are dropped", func() bool { return asked.Load() >= places && l.Counts().Dropped >= burst-places })
	close(held)
	buffer := make([]byte, 512)
	for range places {
		_ = c.SetReadDeadline(hosttest.Deadline())
		if _, err := c.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write([]byte("def")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(hosttest.Deadline())
	n, err := c.Read(buffer)
	if err != nil || string(buffer[:n]) != "fed" {
		t.Fatalf("after the burst: got %q %v, want fed", buffer[:n], err)
	}
}

func TestUDPToOtherPortsIsRefused(t *testing.T) {
	h := &handler{}
	_, b := open(t, h, attachment.Options{})
	for _, to := range []string{"8.8.8.8:443", "10.199.0.1:123", "169.254.169.254:80"} {
		c := b.dialUDP(t, to)
		var err error
		for err == nil {
			// The refusal of one datagram is reported by a later call.
			_, err = c.Write([]byte("x"))
			time.Sleep(time.Millisecond)
		}
		if !strings.Contains(err.Error(), "refused") {
			t.Errorf("write to %s: got %v, want connection refused", to, err)
		}
	}
	got := slices.Compact(h.drops())
	if want := []string{"udp 8.8.8.8:443", "udp 10.199.0.1:123", "udp 169.254.169.254:80"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
