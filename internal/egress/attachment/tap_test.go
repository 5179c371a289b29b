package attachment_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	reexec.Dispatch(attachmenttest.TapRole)
	os.Exit(m.Run())
}

// connListener is a listener whose connections come from a channel.
type connListener chan net.Conn

func (s connListener) Accept() (net.Conn, error) {
	c, ok := <-s
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (s connListener) Close() error   { return nil }
func (s connListener) Addr() net.Addr { return &net.TCPAddr{} }

const tapBody = 8 << 20

// webHandler returns a handler that serves HTTP on port 80 of every address and refuses other
// ports.
func webHandler(t testing.TB) *handler {
	t.Helper()
	conns := make(connListener)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(strings.Repeat("0123456789abcdef", tapBody/16)))
			return
		}
		h := sha256.New()
		_, _ = io.Copy(h, r.Body)
		fmt.Fprintf(w, "%x", h.Sum(nil))
	})}
	go func() { _ = server.Serve(conns) }()
	t.Cleanup(func() { close(conns); server.Close() })
	return &handler{tcp: func(f *attachment.Flow) {
		if f.Destination().Port() != 80 {
			return
		}
		if c, err := f.Accept(); err == nil {
			conns <- c
		}
	}}
}

func openTap(t testing.TB, rootless bool, mtu int, h *handler, program ...string) (attachment.Attachment, *attachmenttest.Kernel) {
	t.Helper()
	link, k := attachmenttest.StartTap(t, rootless, mtu, program...)
	l, err := attachment.Open(attachment.Tap, link, h, attachment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, k
}

// The host's own kernel verifies checksums, so a single wrong one would leave curl without an
// answer.
func TestTapCarriesKernelTraffic(t *testing.T) {
	hosttest.Need(t, hosttest.Program("curl"))
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", tapBody)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, rootless := range []bool{false, true} {
		for _, mtu := range []int{576, 1500, 0} {
			t.Run(fmt.Sprintf("rootless=%v/mtu=%d", rootless, mtu), func(t *testing.T) {
				l, k := openTap(t, rootless, mtu, webHandler(t), curlCommand(file)...)
				k.Go()
				wantCurlResults(t, k, l)
			})
		}
	}
}

func TestTapEndsWithDevice(t *testing.T) {
	hosttest.Need(t, hosttest.Program("ip"))
	l, k := openTap(t, false, 0, &handler{}, "ip", "link", "del", "eth0")
	select {
	case <-l.Done():
		t.Fatal("control: the attachment had ended before its device")
	default:
	}
	k.Go()
	if got, err := k.Wait(); err != nil {
		t.Fatalf("ip link del eth0: %v\n%s", err, got)
	}
	select {
	case <-l.Done():
	case <-hosttest.Late():
		t.Fatal("the attachment outlives its device")
	}
}

// Close removes the device and its route from the namespace.
func TestClosedTapRemovesDevice(t *testing.T) {
	hosttest.Need(t, hosttest.Program("ip"))
	for _, closed := range []bool{false, true} {
		l, k := openTap(t, false, 0, &handler{}, "ip", "link", "show", "eth0")
		if closed {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		k.Go()
		if got, err := k.Wait(); (err != nil) != closed {
			t.Errorf("after Close=%v: ip link show eth0: %v\n%s", closed, err, got)
		}
	}
}

func TestTapRejectsOtherDescriptors(t *testing.T) {
	peer, ours, err := attachment.Pair(attachment.Packets)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{ours, null} {
		if _, err := attachment.Open(attachment.Tap, f, &handler{}, attachment.Options{}); err == nil {
			t.Errorf("Open accepted %s as a TUN device", f.Name())
		}
	}
}
