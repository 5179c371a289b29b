package wire_test

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/crannog/crannog/internal/causeway/wire"
	"github.com/crannog/crannog/internal/causeway/wire/wiretest"
)

// box is the network of a sandbox, with what tests say often.
type box struct{ *wiretest.Box }

func newBox(t testing.TB, end *os.File) *box {
	t.Helper()
	b, err := wiretest.Open(end)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &box{b}
}

func (b *box) dial(ctx context.Context, to string) (*gonet.TCPConn, error) {
	return b.Dial(ctx, netip.MustParseAddrPort(to))
}

func (b *box) mustDial(t testing.TB, to string) *gonet.TCPConn {
	t.Helper()
	c, err := b.dial(t.Context(), to)
	if err != nil {
		t.Fatalf("dial %s: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (b *box) dialUDP(t testing.TB, to string) *gonet.UDPConn {
	t.Helper()
	c, err := b.DialUDP(netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// handler is a Handler of functions; what is nil refuses.
type handler struct {
	tcp   func(f *wire.Flow)
	names func(query []byte, max int) []byte

	mu      sync.Mutex
	dropped []string
}

func (h *handler) TCP(f *wire.Flow) {
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

// open makes a link with a box at its end.
func open(t testing.TB, h wire.Handler, o wire.Options) (*wire.Link, *box) {
	t.Helper()
	l, end := openRaw(t, h, o)
	return l, newBox(t, end)
}

func openRaw(t testing.TB, h wire.Handler, o wire.Options) (*wire.Link, *os.File) {
	t.Helper()
	end, ours, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.Open(ours, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, end
}
