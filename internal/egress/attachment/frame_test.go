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

// frame returns an IPv4 packet with a right checksum.
func frame(proto byte, source, dst netip.Addr, body []byte) []byte {
	f := make([]byte, 20, 20+len(body))
	f[0], f[8], f[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(f[2:], uint16(20+len(body)))
	s, d := source.As4(), dst.As4()
	copy(f[12:], s[:])
	copy(f[16:], d[:])
	return append(sum(f), body...)
}

func sum(f []byte) []byte {
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
	boxAddress = egress.SandboxPrefix.Addr()
	elsewhere  = netip.MustParseAddr("1.1.1.1")
)

// sending writes raw frames.
func sending(t testing.TB, end *os.File) func([]byte) {
	t.Helper()
	fd := int(end.Fd())
	t.Cleanup(func() { end.Close() })
	return func(f []byte) {
		if err := unix.Send(fd, f, unix.MSG_NOSIGNAL); err != nil {
			t.Errorf("send: %v", err)
		}
	}
}

// arrived waits until the attachment has received n frames.
func arrived(t testing.TB, l attachment.Attachment, n uint64) {
	t.Helper()
	hosttest.Eventually(t, "the frames have arrived", func() bool { return l.Counts().Received >= n })
}

func TestDroppedTraffic(t *testing.T) {
	change := func(f []byte, at int, to ...byte) []byte { copy(f[at:], to); return sum(f) }
	tcpSyn := segment(4000, 80, syn, 1, 0)
	addr := netip.MustParseAddr
	v6 := append([]byte{0x60, 0, 0, 0, 0, 0, 58, 255}, make([]byte, 32)...)
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"one byte":          {[]byte{0x45}, "malformed invalid AddrPort"},
		"ipv6":              {v6, "ipv6 [::]:0"},
		"ipv5":              {append([]byte{0x55}, make([]byte, 30)...), "malformed invalid AddrPort"},
		"options":           {change(frame(6, boxAddress, elsewhere, append(make([]byte, 4), tcpSyn...)), 0, 0x46), "malformed 1.1.1.1:0"},
		"short header":      {change(frame(6, boxAddress, elsewhere, tcpSyn), 0, 0x44), "malformed 1.1.1.1:0"},
		"length past end":   {change(frame(6, boxAddress, elsewhere, tcpSyn), 2, 0xff, 0xff), "malformed 1.1.1.1:0"},
		"length too small":  {change(frame(6, boxAddress, elsewhere, tcpSyn), 2, 0, 19), "malformed 1.1.1.1:0"},
		"first fragment":    {change(frame(6, boxAddress, elsewhere, tcpSyn), 6, 0x20, 0), "fragment 1.1.1.1:0"},
		"last fragment":     {change(frame(6, boxAddress, elsewhere, tcpSyn), 6, 0, 1), "fragment 1.1.1.1:0"},
		"spoofed":           {frame(6, elsewhere, addr("8.8.8.8"), tcpSyn), "spoofed 8.8.8.8:0"},
		"spoofed gateway":   {frame(17, egress.Gateway, addr("8.8.8.8"), datagram(53, 53, "q")), "spoofed 8.8.8.8:0"},
		"ping":              {frame(1, boxAddress, elsewhere, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}), "icmp 1.1.1.1:0"},
		"ping the gateway":  {frame(1, boxAddress, egress.Gateway, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}), "icmp 10.199.0.1:0"},
		"sctp":              {frame(132, boxAddress, elsewhere, make([]byte, 20)), "ip 1.1.1.1:0"},
		"gre":               {frame(47, boxAddress, elsewhere, make([]byte, 20)), "ip 1.1.1.1:0"},
		"igmp":              {frame(2, boxAddress, addr("224.0.0.1"), make([]byte, 8)), "ip 224.0.0.1:0"},
		"multicast":         {frame(17, boxAddress, addr("224.0.0.251"), datagram(5353, 5353, "q")), "udp 224.0.0.251:5353"},
		"multicast names":   {frame(17, boxAddress, addr("224.0.0.251"), datagram(5353, 53, "q")), "udp 224.0.0.251:53"},
		"broadcast":         {frame(17, boxAddress, addr("255.255.255.255"), datagram(68, 67, "q")), "udp 255.255.255.255:67"},
		"broadcast stream":  {frame(6, boxAddress, addr("255.255.255.255"), tcpSyn), "tcp 255.255.255.255:80"},
		"our broadcast":     {frame(6, boxAddress, addr("10.199.0.3"), tcpSyn), "tcp 10.199.0.3:80"},
		"our network":       {frame(6, boxAddress, addr("10.199.0.0"), tcpSyn), "tcp 10.199.0.0:80"},
		"itself":            {frame(6, boxAddress, boxAddress, tcpSyn), "tcp 10.199.0.2:80"},
		"loopback":          {frame(6, boxAddress, addr("127.0.0.1"), tcpSyn), "tcp 127.0.0.1:80"},
		"nowhere":           {frame(6, boxAddress, addr("0.0.0.0"), tcpSyn), "tcp 0.0.0.0:80"},
		"reserved":          {frame(6, boxAddress, addr("240.0.0.1"), tcpSyn), "tcp 240.0.0.1:80"},
		"port zero":         {frame(6, boxAddress, elsewhere, segment(4000, 0, syn, 1, 0)), "tcp 1.1.1.1:0"},
		"from port zero":    {frame(17, boxAddress, elsewhere, datagram(0, 53, "q")), "udp 1.1.1.1:53"},
		"short tcp":         {frame(6, boxAddress, elsewhere, tcpSyn[:19]), "malformed 1.1.1.1:0"},
		"tcp data offset":   {frame(6, boxAddress, elsewhere, append(append([]byte{}, tcpSyn[:12]...), 0xf0, syn, 0, 0, 0, 0, 0, 0)), "malformed 1.1.1.1:0"},
		"short udp":         {frame(17, boxAddress, elsewhere, make([]byte, 7)), "malformed 1.1.1.1:0"},
		"udp length past":   {frame(17, boxAddress, elsewhere, append(datagram(1, 53, "")[:4], 0xff, 0xff, 0, 0)), "malformed 1.1.1.1:0"},
		"larger than a MTU": {frame(17, boxAddress, elsewhere, datagram(1, 53, strings.Repeat("x", egress.MTU))), "malformed invalid AddrPort"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handler{
				tcp:   func(f *attachment.Flow) { t.Errorf("a flow to %s", f.Destination()) },
				names: func(q []byte, _ int) []byte { t.Errorf("a query %q", q); return nil },
			}
			l, end := openRaw(t, h, attachment.Options{})
			sending(t, end)(c.frame)
			arrived(t, l, 1)
			l.Close()
			if d := h.drops(); len(d) != 1 || d[0] != c.want {
				t.Errorf("reported %q, want %q", d, c.want)
			}
			if got := l.Counts(); got.Dropped != 1 || got.Sent != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
	// Control: the same SYN to a unicast address reaches the handler.
	flows := make(chan string, 1)
	_, end := openRaw(t, &handler{tcp: func(f *attachment.Flow) { flows <- f.Destination().String() }}, attachment.Options{})
	sending(t, end)(frame(6, boxAddress, elsewhere, tcpSyn))
	if got := <-flows; got != "1.1.1.1:80" {
		t.Error(got)
	}
}

// A sandbox that begins handshakes without completing them holds no more than the limit, and does
// not delay Close.
func TestAbandonedHandshakes(t *testing.T) {
	const limit, sent = 16, 200
	started, failed := make(chan struct{}, sent), make(chan struct{}, sent)
	l, end := openRaw(t, &handler{tcp: func(f *attachment.Flow) {
		started <- struct{}{}
		if c, err := f.Accept(); err == nil {
			c.Close()
			t.Error("accepted without a handshake")
		}
		failed <- struct{}{}
	}}, attachment.Options{MaxHalfOpen: limit})
	send := sending(t, end)
	for i := range sent {
		send(frame(6, boxAddress, elsewhere, segment(uint16(1000+i), 80, syn, 1, 0)))
	}
	arrived(t, l, sent)
	// Control: at least one is half open, with its own goroutine.
	<-started
	if n := l.Counts().Connections; n > limit {
		t.Errorf("%d in the making, the cap is %d", n, limit)
	}
	begin := time.Now()
	l.Close()
	// These handshakes are never completed, and each would be retried for longer: a minute of the
	// stack's clock.
	if took := time.Since(begin); took > hosttest.Patience(20*time.Second) {
		t.Errorf("Close took %v", took)
	}
	hosttest.Eventually(t, "all connections are over", func() bool { return l.Counts().Connections == 0 })
	<-failed
}

// A flood affects only the sandbox that sends it.
func TestFloodCostsOnlyTheFlooder(t *testing.T) {
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
			frame(1, boxAddress, elsewhere, make([]byte, 8)),
			frame(17, boxAddress, elsewhere, datagram(1, 1, "x")),
			frame(6, boxAddress, elsewhere, segment(1, 80, syn, 1, 0)),
			frame(6, boxAddress, elsewhere, segment(2, 80, ack, 1, 1)),
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
	// On a busy machine it takes longer until the traffic counts as a flood.
	enough := func() bool {
		return flooded.Counts().Received >= 10_000 || time.Since(started) > hosttest.Patience(hosttest.Hang)
	}
	for time.Since(started) < 500*time.Millisecond || !enough() {
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
		t.Error("control: that is no flood")
	}
	if limit := uint64(10_000 + took*5000*2); n.Dropped > limit {
		t.Errorf("%d useless frames were read, more than %d", n.Dropped, limit)
	}
	if len(h.drops()) > 40+int(took*20)+1 {
		t.Errorf("%d reports", len(h.drops()))
	}
}

// Hostile traffic of a sandbox neither stops the attachment nor reaches another address, and all
// answers go back to the sandbox.
func FuzzFrames(f *testing.F) {
	f.Add(frame(6, boxAddress, elsewhere, segment(4000, 80, syn, 1, 0)), frame(6, boxAddress, elsewhere, segment(4000, 80, ack, 2, 1)))
	f.Add(frame(17, boxAddress, elsewhere, datagram(4000, 53, "q")), frame(17, boxAddress, elsewhere, datagram(4000, 54, "q")))
	f.Add(frame(1, boxAddress, egress.Gateway, make([]byte, 8)), []byte{0x60})
	f.Add([]byte{}, []byte{0x45, 0, 0, 1})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		if len(one) == 0 || len(two) == 0 || len(one) > 60000 || len(two) > 60000 {
			return
		}
		h := &handler{
			names: func(q []byte, _ int) []byte { return q },
			tcp: func(f *attachment.Flow) {
				if !f.Source().Addr().Is4() || f.Source().Addr() != boxAddress {
					t.Errorf("a flow from %s", f.Source())
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
		arrived(t, l, 2)
		// The attachment still works: a query is answered.
		_ = unix.Send(fd, frame(17, boxAddress, elsewhere, datagram(7, 53, "alive")), unix.MSG_NOSIGNAL)
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		_ = unix.SetNonblock(fd, false)
		answer := make([]byte, 65536)
		for {
			n, _, err := unix.Recvfrom(fd, answer, 0)
			if err != nil || n < 20 {
				stacks := make([]byte, 1<<20)
				t.Fatalf("no answer: %d %v %+v\n%s", n, err, l.Counts(), stacks[:runtime.Stack(stacks, true)])
			}
			if netip.AddrFrom4([4]byte(answer[16:20])) != boxAddress {
				t.Fatalf("a frame to %v", answer[16:20])
			}
			if answer[9] == 17 && strings.HasSuffix(string(answer[:n]), "alive") {
				return
			}
		}
	})
}
