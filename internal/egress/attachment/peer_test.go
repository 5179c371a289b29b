package attachment_test

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
)

// testPeer is the sandbox's end of an attachment, with shortcuts for tests.
type testPeer struct{ *attachmenttest.Peer }

func newTestPeer(t testing.TB, end *os.File) *testPeer {
	t.Helper()
	b, err := attachmenttest.Open(end)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &testPeer{b}
}

func (b *testPeer) dial(ctx context.Context, to string) (*gonet.TCPConn, error) {
	return b.Dial(ctx, netip.MustParseAddrPort(to))
}

func (b *testPeer) mustDial(t testing.TB, to string) *gonet.TCPConn {
	t.Helper()
	c, err := b.dial(t.Context(), to)
	if err != nil {
		t.Fatalf("dial %s: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (b *testPeer) dialUDP(t testing.TB, to string) *gonet.UDPConn {
	t.Helper()
	c, err := b.DialUDP(netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// handler is a Handler made of functions. A nil function refuses or does not answer.
type handler struct {
	tcp   func(f *attachment.Flow)
	names func(query []byte, max int) []byte

	mu      sync.Mutex
	dropped []string
}

func (h *handler) TCP(f *attachment.Flow) {
	if h.tcp != nil {
		h.tcp(f)
	}
}

func (h *handler) Names(query []byte, max int) []byte {
	if h.names == nil {
		return nil
	}
	return h.names(query, max)
}

func (h *handler) Dropped(proto string, dst netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped = append(h.dropped, proto+" "+dst.String())
}

func (h *handler) drops() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.dropped...)
}

// open creates an attachment with a sandbox at its end.
func open(t testing.TB, h attachment.Handler, o attachment.Options) (attachment.Attachment, *testPeer) {
	t.Helper()
	l, end := openRaw(t, h, o)
	return l, newTestPeer(t, end)
}

func openRaw(t testing.TB, h attachment.Handler, o attachment.Options) (attachment.Attachment, *os.File) {
	t.Helper()
	end, ours, err := attachment.Pair(attachment.Packets)
	if err != nil {
		t.Fatal(err)
	}
	l, err := attachment.Open(attachment.Packets, ours, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, end
}
