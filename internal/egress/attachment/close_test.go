package attachment_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestCloseEndsEveryFlow(t *testing.T) {
	h, conns := accepting(t)
	l, b := open(t, h, attachment.Options{})
	inside := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	read := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		read <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err == nil {
		t.Error("a read succeeded after Close")
	}
	if _, err := ours.Write([]byte("x")); err == nil {
		t.Error("a write succeeded after Close")
	}
	ours.Close()
	if _, err := inside.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("read inside the sandbox: got %v, want a reset", err)
	}
	select {
	case <-l.Done():
	default:
		t.Error("Done is not closed after Close")
	}
	l.Close()
}

func TestPeerCloseEndsAttachment(t *testing.T) {
	h, conns := accepting(t)
	l, b := open(t, h, attachment.Options{})
	b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	_ = b.Hangup()
	<-l.Done()
	if _, err := ours.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read after the sandbox closed its end: got %v, want an error other than EOF", err)
	}
}

func TestWriteAfterResetReturnsSyscallError(t *testing.T) {
	h, conns := accepting(t)
	_, b := open(t, h, attachment.Options{})
	c := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	defer ours.Close()
	// A close with unread data is a reset.
	_, _ = ours.Write([]byte("unread"))
	hosttest.Eventually(t, "two segments arrived", func() bool { return b.Segments() >= 2 })
	time.Sleep(10 * time.Millisecond)
	c.Close()
	for {
		if _, err := ours.Write([]byte("x")); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("write after a reset: got %v, want ECONNRESET or EPIPE", err)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Nothing is left of an attachment, however it ends and in whatever state its flows are.
func TestAttachmentLeavesNoResources(t *testing.T) {
	cycle := func(end func(l attachment.Attachment, b *testPeer)) {
		ctx, cancel := context.WithCancel(t.Context())
		var dials sync.WaitGroup
		conns := make(chan net.Conn, 4)
		release := make(chan struct{})
		h := &handler{tcp: func(f *attachment.Flow) {
			switch f.Destination().Port() {
			case 80:
				if c, err := f.Accept(); err == nil {
					conns <- c
				}
			case 81:
				<-release // undecided
			case 82:
				<-release
				if c, err := f.Accept(); err == nil {
					c.Close()
				}
			}
		}}
		l, b := open(t, h, attachment.Options{})
		c, err := b.dial(t.Context(), "1.1.1.1:80")
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{81, 82} {
			dials.Go(func() {
				if c, err := b.dial(ctx, fmt.Sprintf("1.1.1.1:%d", port)); err == nil {
					c.Close()
				}
			})
		}
		ours := <-conns
		go func() { _, _ = io.Copy(ours, zeros{}) }()
		end(l, b)
		<-l.Done()
		close(release)
		c.Close()
		ours.Close()
		cancel()
		dials.Wait()
		b.Close()
	}
	ends := map[string]func(attachment.Attachment, *testPeer){
		"closed by us":          func(l attachment.Attachment, _ *testPeer) { l.Close() },
		"closed by the sandbox": func(_ attachment.Attachment, b *testPeer) { _ = b.Hangup() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			cycle(end)
			goroutines, descriptors := countResources(t, 0, 0)
			for range 10 {
				cycle(end)
			}
			if g, d := countResources(t, goroutines, descriptors); g > goroutines || d > descriptors {
				stacks := make([]byte, 1<<16)
				t.Errorf("goroutines %d, before %d; descriptors %d, before %d\n%s", g, goroutines, d, descriptors, stacks[:runtime.Stack(stacks, true)])
			}
		})
	}
	// Control: an open attachment is counted.
	g, d := countResources(t, 0, 0)
	_, end := openRaw(t, &handler{}, attachment.Options{})
	defer end.Close()
	if g2, d2 := countResources(t, 0, 0); g2 <= g || d2 <= d {
		t.Errorf("an open attachment is not counted: goroutines %d then %d, descriptors %d then %d", g, g2, d, d2)
	}
}

// countGoroutines counts goroutines, except those of the test sandbox's endpoint, which live as
// long as the process.
func countGoroutines() int {
	stacks := make([]byte, 4<<20)
	n := 0
	for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if !strings.Contains(one, "tcpip/link/fdbased") {
			n++
		}
	}
	return n
}

// countResources counts goroutines and descriptors, and waits for a limited time until they are at
// most want.
func countResources(t *testing.T, wantGoroutines, wantDescriptors int) (goroutines, descriptors int) {
	t.Helper()
	const quiet = 10 // equal counts in a row, because a busy machine ends goroutines late
	last, same := -1, 0
	for end := hosttest.Deadline(); time.Now().Before(end); {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		goroutines, descriptors = countGoroutines(), 0
		for _, e := range entries {
			// The test sandbox's endpoint leaves other descriptors open.
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "socket:") {
				descriptors++
			}
		}
		if goroutines <= wantGoroutines && descriptors <= wantDescriptors || wantGoroutines == 0 && same >= quiet {
			return goroutines, descriptors
		}
		if same++; goroutines != last {
			last, same = goroutines, 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return goroutines, descriptors
}

func TestOpenRejectsOtherDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := attachment.Open(attachment.Packets, r, &handler{}, attachment.Options{}); err == nil {
		t.Fatal("Open accepted a pipe")
	}
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Open did not close the rejected descriptor: %v", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	if _, err := attachment.Open(attachment.Packets, os.NewFile(uintptr(fds[0]), "stream"), &handler{}, attachment.Options{}); err == nil {
		t.Fatal("Open accepted a stream socket, which keeps no packet boundaries")
	}
}

// A descriptor may arrive over a socket, or may be in blocking mode.
func TestOpenAcceptsBlockingDescriptor(t *testing.T) {
	end, ours, err := attachment.Pair(attachment.Packets)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(ours.Fd()), false); err != nil {
		t.Fatal(err)
	}
	l, err := attachment.Open(attachment.Packets, ours, &handler{tcp: echo}, attachment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	newTestPeer(t, end).mustDial(t, "1.1.1.1:80")
	l.Close()
}
