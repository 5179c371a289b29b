package attachment_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// frame returns an IPv4 packet with a correct header checksum.
func frame(proto byte, source, dst netip.Addr, body []byte) []byte {
	f := make([]byte, 20, 20+len(body))
	f[0], f[8], f[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(f[2:], uint16(20+len(body)))
	s, d := source.As4(), dst.As4()
	copy(f[12:], s[:])
	copy(f[16:], d[:])
	return append(setChecksum(f), body...)
}

func setChecksum(f []byte) []byte {
	f[10], f[11] = 0, 0
	var n uint32
	for i := 0; i < 20; i += 2 {
		n += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for n > 0xffff {
		n = n&0xffff + n>>16
	}
	binary.BigEndian.PutUint16(f[10:], ^uint16(n))
	return f
}

func segment(source, dst uint16, flags byte, sequence, ack uint32) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, source)
	binary.BigEndian.PutUint16(b[2:], dst)
	binary.BigEndian.PutUint32(b[4:], sequence)
	binary.BigEndian.PutUint32(b[8:], ack)
	b[12], b[13] = 5<<4, flags
	binary.BigEndian.PutUint16(b[14:], 65535)
	return b
}

func datagram(source, dst uint16, payload string) []byte {
	b := make([]byte, 8)
	binary.BigEndian.PutUint16(b, source)
	binary.BigEndian.PutUint16(b[2:], dst)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return append(b, payload...)
}

const syn, ack = 0x02, 0x10

var (
	sandboxAddress = egress.SandboxPrefix.Addr()
	remoteAddress  = netip.MustParseAddr("1.1.1.1")
)

// frameSender returns a function that sends raw frames.
func frameSender(t testing.TB, end *os.File) func([]byte) {
	t.Helper()
	fd := int(end.Fd())
	t.Cleanup(func() { end.Close() })
	return func(f []byte) {
		if err := unix.Send(fd, f, unix.MSG_NOSIGNAL); err != nil {
			t.Errorf("send: %v", err)
		}
	}
}

// waitReceived waits until the attachment has received n frames.
func waitReceived(t testing.TB, l attachment.Attachment, n uint64) {
	t.Helper()
	hosttest.Eventually(t, "the frames have arrived", func() bool { return l.Counts().Received >= n })
}

func TestInvalidFramesAreDropped(t *testing.T) {
	change := func(f []byte, at int, to ...byte) []byte { copy(f[at:], to); return setChecksum(f) }
	tcpSyn := segment(4000, 80, syn, 1, 0)
	addr := netip.MustParseAddr
	v6 := append([]byte{0x60, 0, 0, 0, 0, 0, 58, 255}, make([]byte, 32)...)
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"one byte":                    {[]byte{0x45}, "malformed invalid AddrPort"},
		"ipv6":                        {v6, "ipv6 [::]:0"},
		"ipv5":                        {append([]byte{0x55}, make([]byte, 30)...), "malformed invalid AddrPort"},
		"options":                     {change(frame(6, sandboxAddress, remoteAddress, append(make([]byte, 4), tcpSyn...)), 0, 0x46), "malformed 1.1.1.1:0"},
		"short header":                {change(frame(6, sandboxAddress, remoteAddress, tcpSyn), 0, 0x44), "malformed 1.1.1.1:0"},
		"length past end":             {change(frame(6, sandboxAddress, remoteAddress, tcpSyn), 2, 0xff, 0xff), "malformed 1.1.1.1:0"},
		"length too small":            {change(frame(6, sandboxAddress, remoteAddress, tcpSyn), 2, 0, 19), "malformed 1.1.1.1:0"},
		"first fragment":              {change(frame(6, sandboxAddress, remoteAddress, tcpSyn), 6, 0x20, 0), "fragment 1.1.1.1:0"},
		"last fragment":               {change(frame(6, sandboxAddress, remoteAddress, tcpSyn), 6, 0, 1), "fragment 1.1.1.1:0"},
		"spoofed":                     {frame(6, remoteAddress, addr("8.8.8.8"), tcpSyn), "spoofed 8.8.8.8:0"},
		"spoofed gateway":             {frame(17, egress.Gateway, addr("8.8.8.8"), datagram(53, 53, "q")), "spoofed 8.8.8.8:0"},
		"ping":                        {frame(1, sandboxAddress, remoteAddress, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}), "icmp 1.1.1.1:0"},
		"ping the gateway":            {frame(1, sandboxAddress, egress.Gateway, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}), "icmp 10.199.0.1:0"},
		"sctp":                        {frame(132, sandboxAddress, remoteAddress, make([]byte, 20)), "ip 1.1.1.1:0"},
		"gre":                         {frame(47, sandboxAddress, remoteAddress, make([]byte, 20)), "ip 1.1.1.1:0"},
		"igmp":                        {frame(2, sandboxAddress, addr("224.0.0.1"), make([]byte, 8)), "ip 224.0.0.1:0"},
		"multicast":                   {frame(17, sandboxAddress, addr("224.0.0.251"), datagram(5353, 5353, "q")), "udp 224.0.0.251:5353"},
		"multicast names":             {frame(17, sandboxAddress, addr("224.0.0.251"), datagram(5353, 53, "q")), "udp 224.0.0.251:53"},
		"broadcast":                   {frame(17, sandboxAddress, addr("255.255.255.255"), datagram(68, 67, "q")), "udp 255.255.255.255:67"},
		"broadcast stream":            {frame(6, sandboxAddress, addr("255.255.255.255"), tcpSyn), "tcp 255.255.255.255:80"},
		"sandbox network's broadcast": {frame(6, sandboxAddress, addr("10.199.0.3"), tcpSyn), "tcp 10.199.0.3:80"},
		"sandbox network itself":      {frame(6, sandboxAddress, addr("10.199.0.0"), tcpSyn), "tcp 10.199.0.0:80"},
		"sandbox's own address":       {frame(6, sandboxAddress, sandboxAddress, tcpSyn), "tcp 10.199.0.2:80"},
		"loopback":                    {frame(6, sandboxAddress, addr("127.0.0.1"), tcpSyn), "tcp 127.0.0.1:80"},
		"unspecified address":         {frame(6, sandboxAddress, addr("0.0.0.0"), tcpSyn), "tcp 0.0.0.0:80"},
		"reserved":                    {frame(6, sandboxAddress, addr("240.0.0.1"), tcpSyn), "tcp 240.0.0.1:80"},
		"port zero":                   {frame(6, sandboxAddress, remoteAddress, segment(4000, 0, syn, 1, 0)), "tcp 1.1.1.1:0"},
		"from port zero":              {frame(17, sandboxAddress, remoteAddress, datagram(0, 53, "q")), "udp 1.1.1.1:53"},
		"short tcp":                   {frame(6, sandboxAddress, remoteAddress, tcpSyn[:19]), "malformed 1.1.1.1:0"},
		"tcp data offset":             {frame(6, sandboxAddress, remoteAddress, append(append([]byte{}, tcpSyn[:12]...), 0xf0, syn, 0, 0, 0, 0, 0, 0)), "malformed 1.1.1.1:0"},
		"short udp":                   {frame(17, sandboxAddress, remoteAddress, make([]byte, 7)), "malformed 1.1.1.1:0"},
		"udp length past end":         {frame(17, sandboxAddress, remoteAddress, append(datagram(1, 53, "")[:4], 0xff, 0xff, 0, 0)), "malformed 1.1.1.1:0"},
		"larger than the MTU":         {frame(17, sandboxAddress, remoteAddress, datagram(1, 53, strings.Repeat("x", egress.MTU))), "malformed invalid AddrPort"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handler{
				tcp:   func(f *attachment.Flow) { t.Errorf("the handler got a flow to %s", f.Destination()) },
				names: func(q []byte, _ int) []byte { t.Errorf("the handler got a query %q", q); return nil },
			}
			l, end := openRaw(t, h, attachment.Options{})
			frameSender(t, end)(c.frame)
			waitReceived(t, l, 1)
			l.Close()
			if d := h.drops(); len(d) != 1 || d[0] != c.want {
				t.Errorf("reported %q, want %q", d, c.want)
			}
			if got := l.Counts(); got.Dropped != 1 || got.Sent != 0 {
				t.Errorf("counts are %+v, want 1 dropped and none sent", got)
			}
		})
	}
	// Control: the same SYN to a unicast address reaches the handler.
	flows := make(chan string, 1)
	_, end := openRaw(t, &handler{tcp: func(f *attachment.Flow) { flows <- f.Destination().String() }}, attachment.Options{})
	frameSender(t, end)(frame(6, sandboxAddress, remoteAddress, tcpSyn))
	if got := <-flows; got != "1.1.1.1:80" {
		t.Errorf("control: the handler got a flow to %s, want 1.1.1.1:80", got)
	}
}

// A sandbox that begins handshakes without completing them holds no more than the limit, and does
// not delay Close.
func TestAbandonedHandshakesAreLimited(t *testing.T) {
	const limit, sent = 16, 200
	started, failed := make(chan struct{}, sent), make(chan struct{}, sent)
	l, end := openRaw(t, &handler{tcp: func(f *attachment.Flow) {
		started <- struct{}{}
		if c, err := f.Accept(); err == nil {
			c.Close()
			t.Error("a connection was accepted without a complete handshake")
		}
		failed <- struct{}{}
	}}, attachment.Options{MaxHalfOpen: limit})
	send := frameSender(t, end)
	for i := range sent {
		send(frame(6, sandboxAddress, remoteAddress, segment(uint16(1000+i), 80, syn, 1, 0)))
	}
	waitReceived(t, l, sent)
	// Control: at least one is half open, with its own goroutine.
	<-started
	if n := l.Counts().Connections; n > limit {
		t.Errorf("%d half-open connections, the limit is %d", n, limit)
	}
	begin := time.Now()
	l.Close()
	// These handshakes are never completed, and each would be retried for longer: a minute of the
	// stack's clock.
	if took := time.Since(begin); took > hosttest.Patience(20*time.Second) {
		t.Errorf("Close took %v", took)
	}
	hosttest.Eventually(t, "all connections have ended", func() bool { return l.Counts().Connections == 0 })
	<-failed
}

// A flood affects only the sandbox that sends it.
func TestFloodAffectsOnlyItsSender(t *testing.T) {
	h := &handler{}
	flooded, end := openRaw(t, h, attachment.Options{})
	_, b := open(t, &handler{tcp: echo}, attachment.Options{})
	fd := int(end.Fd())
	defer end.Close()
	stop := make(chan struct{})
	started := time.Now()
	var flood sync.WaitGroup
	flood.Go(func() {
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 10000})
		frames := [][]byte{
			frame(1, sandboxAddress, remoteAddress, make([]byte, 8)),
			frame(17, sandboxAddress, remoteAddress, datagram(1, 1, "x")),
			frame(6, sandboxAddress, remoteAddress, segment(1, 80, syn, 1, 0)),
			frame(6, sandboxAddress, remoteAddress, segment(2, 80, ack, 1, 1)),
			{0xff},
		}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = unix.Send(fd, frames[i%len(frames)], unix.MSG_NOSIGNAL)
			}
		}
	})
	c := b.mustDial(t, "1.1.1.1:80")
	var worst time.Duration
	// isFlood reports whether enough frames were read. On a busy machine that takes longer.
	isFlood := func() bool {
		return flooded.Counts().Received >= 10_000 || time.Since(started) > hosttest.Patience(hosttest.Hang)
	}
	for time.Since(started) < 500*time.Millisecond || !isFlood() {
		sent := time.Now()
		_, _ = c.Write([]byte("ping"))
		if _, err := c.Read(make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(sent))
	}
	close(stop)
	flood.Wait()
	took := time.Since(started).Seconds()
	n := flooded.Counts()
	t.Logf("%d frames of the flood were read in %.1f s; the other attachment's slowest round trip was %v; %d reports", n.Received, took, worst, len(h.drops()))
	if n.Received < 10_000 {
		t.Errorf("control: only %d frames were read, which is no flood", n.Received)
	}
	if limit := uint64(10_000 + took*5000*2); n.Dropped > limit {
		t.Errorf("%d dropped frames were read, want at most %d", n.Dropped, limit)
	}
	if len(h.drops()) > 40+int(took*20)+1 {
		t.Errorf("%d dropped frames were reported, want at most 20 per second", len(h.drops()))
	}
}

// Hostile traffic of a sandbox does not stop the attachment, and every frame that the attachment
// sends is addressed to the sandbox.
func FuzzFrames(f *testing.F) {
	f.Add(frame(6, sandboxAddress, remoteAddress, segment(4000, 80, syn, 1, 0)), frame(6, sandboxAddress, remoteAddress, segment(4000, 80, ack, 2, 1)))
	f.Add(frame(17, sandboxAddress, remoteAddress, datagram(4000, 53, "q")), frame(17, sandboxAddress, remoteAddress, datagram(4000, 54, "q")))
	f.Add(frame(1, sandboxAddress, egress.Gateway, make([]byte, 8)), []byte{0x60})
	f.Add([]byte{}, []byte{0x45, 0, 0, 1})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		if len(one) == 0 || len(two) == 0 || len(one) > 60000 || len(two) > 60000 {
			return
		}
		h := &handler{
			names: func(q []byte, _ int) []byte { return q },
			tcp: func(f *attachment.Flow) {
				if !f.Source().Addr().Is4() || f.Source().Addr() != sandboxAddress {
					t.Errorf("the handler got a flow from %s", f.Source())
				}
				if f.Destination().Port()%2 == 0 {
					echo(f)
				}
			},
		}
		end, ours, err := attachment.Pair(attachment.Packets)
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		l, err := attachment.Open(attachment.Packets, ours, h, attachment.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		fd := int(end.Fd())
		for _, frame := range [][]byte{one, two} {
			_ = unix.Send(fd, frame, unix.MSG_NOSIGNAL)
		}
		waitReceived(t, l, 2)
		// The attachment still works: a query is answered.
		_ = unix.Send(fd, frame(17, sandboxAddress, remoteAddress, datagram(7, 53, "alive")), unix.MSG_NOSIGNAL)
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		_ = unix.SetNonblock(fd, false)
		answer := make([]byte, 65536)
		for {
			n, _, err := unix.Recvfrom(fd, answer, 0)
			if err != nil || n < 20 {
				stacks := make([]byte, 1<<20)
				t.Fatalf("no answer to a query: %d bytes, %v, %+v\n%s", n, err, l.Counts(), stacks[:runtime.Stack(stacks, true)])
			}
			if netip.AddrFrom4([4]byte(answer[16:20])) != sandboxAddress {
				t.Fatalf("a frame was sent to %v", answer[16:20])
			}
			if answer[9] == 17 && strings.HasSuffix(string(answer[:n]), "alive") {
				return
			}
		}
	})
}
