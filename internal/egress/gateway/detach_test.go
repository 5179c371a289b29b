package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var kernelForms = []attachmenttest.Form{attachmenttest.TUN, attachmenttest.TAP, attachmenttest.Datagrams, attachmenttest.Messages, attachmenttest.Stream}

// attachKernel attaches the network of a sleeping process.
func attachKernel(t *testing.T, c *Client, dir string, form attachmenttest.Form, id string) *attachmenttest.Kernel {
	t.Helper()
	link, k := attachmenttest.StartKernel(t, form, false, 0, "sleep", "100000")
	k.Go()
	a := testAttachment(t, dir, id)
	a.Kind, a.Link = form.Kind(), link
	if _, _, err := c.Attach(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	link.Close()
	return k
}

// attached counts the sandboxes of the process.
func attached(t *testing.T, c *Client) int {
	t.Helper()
	list, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// bystander is a namespace without a process. The kernel removes namespaces in order. So once this
// one is removed, those that lost their processes earlier have been removed too.
func bystander(t *testing.T) {
	t.Helper()
	link, k := attachmenttest.StartTap(t, false, 0, "sleep", "100000")
	alive := attachmenttest.WatchNamespace(t, k.PID())
	if !alive() {
		t.Fatal("control: a namespace with a process is not seen")
	}
	k.Kill()
	link.Close()
	hosttest.Eventually(t, "a namespace without a holder ends", func() bool { return !alive() })
}

// If a sandbox is killed, its device stays with the gateway, and so does the network namespace.
// Detach ends both.
func TestDetachEndsTheNamespaceOfADevice(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, form := range []attachmenttest.Form{attachmenttest.TUN, attachmenttest.TAP} {
		t.Run(string(form), func(t *testing.T) {
			dir := newEnvironment(t)
			c := mustConnect(t, dir, Options{})
			k := attachKernel(t, c, dir, form, "box1")
			alive := attachmenttest.WatchNamespace(t, k.PID())
			k.Kill()
			bystander(t)
			if !alive() || attached(t, c) != 1 {
				t.Fatalf("the gateway does not hold it: alive %v, attached %d", alive(), attached(t, c))
			}
			if err := c.Detach(t.Context(), "box1"); err != nil {
				t.Fatal(err)
			}
			hosttest.Eventually(t, "the namespace ends", func() bool { return !alive() })
			if n := attached(t, c); n != 0 {
				t.Errorf("%d attached", n)
			}
		})
	}
}

// If the kernel reports that the sandbox's end is closed, the gateway detaches the sandbox.
func TestASocketEndsWithTheSandbox(t *testing.T) {
	for _, form := range []attachmenttest.Form{attachmenttest.Messages, attachmenttest.Stream} {
		t.Run(string(form), func(t *testing.T) {
			dir := newEnvironment(t)
			c := mustConnect(t, dir, Options{})
			a, peer := attachSocket(t, dir, form, "box1")
			if _, _, err := c.Attach(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			a.Link.Close()
			if attached(t, c) != 1 {
				t.Fatal("control: it is not attached")
			}
			peer.Close()
			hosttest.Eventually(t, "it is detached", func() bool { return attached(t, c) == 0 })
		})
	}
}

func attachSocket(t *testing.T, dir string, form attachmenttest.Form, id string) (a Attachment, peer *os.File) {
	t.Helper()
	peer, link := attachmenttest.Pair(t, form)
	a = testAttachment(t, dir, id)
	a.Kind, a.Link = egress.Ethernet, link
	return a, peer
}

// If the gateway is killed, its ends are closed: a sandbox then has no device, or the end of its
// socket, and its namespace ends with its last process.
func TestAKilledGatewayLeavesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	namespaces := map[attachmenttest.Form]func() bool{}
	kernels := map[attachmenttest.Form]*attachmenttest.Kernel{}
	for _, form := range []attachmenttest.Form{attachmenttest.TUN, attachmenttest.TAP} {
		kernels[form] = attachKernel(t, c, dir, form, string(form))
		namespaces[form] = attachmenttest.WatchNamespace(t, kernels[form].PID())
		if !devices(t, kernels[form].PID()) {
			t.Fatalf("control: no device of %s", form)
		}
	}
	peers := map[attachmenttest.Form]net.Conn{}
	for _, form := range kernelForms[2:] {
		a, peer := attachSocket(t, dir, form, string(form))
		if _, _, err := c.Attach(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Link.Close()
		conn, err := net.FileConn(peer)
		if err := errors.Join(err, peer.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		peers[form] = conn
	}
	link, socket := attachmenttest.ListenProxy(t)
	a := testAttachment(t, dir, "proxy")
	a.Kind, a.Link = egress.Proxy, link
	if _, _, err := c.Attach(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	link.Close()
	if conn, err := socket.Dial(t.Context()); err != nil {
		t.Fatalf("control: %v", err)
	} else {
		conn.Close()
	}
	if n := attached(t, c); n != 6 {
		t.Fatalf("%d attached", n)
	}
	if err := unix.Kill(c.Info().PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	awaitEnd(t, dir)
	for form, k := range kernels {
		hosttest.Eventually(t, fmt.Sprintf("the device of %s goes", form), func() bool { return !devices(t, k.PID()) })
		k.Kill()
		hosttest.Eventually(t, fmt.Sprintf("the namespace of %s ends", form), func() bool { return !namespaces[form]() })
	}
	for form, conn := range peers {
		_ = conn.SetDeadline(hosttest.Deadline())
		var err error
		if form == attachmenttest.Datagrams {
			_, err = conn.Write(make([]byte, 60))
		} else {
			_, err = conn.Read(make([]byte, 60))
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v", form, err)
		}
	}
	if conn, err := socket.Dial(t.Context()); err == nil {
		conn.Close()
		t.Error("somebody listens at the proxy's socket")
	}
	// The next process has none of them.
	if n := attached(t, mustConnect(t, dir, Options{})); n != 0 {
		t.Errorf("%d attached", n)
	}
}

// devices reports whether a process's network namespace has the device.
func devices(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), "eth0:")
}

// Nothing of an attachment is left in the process, however its sandbox ends.
func TestNoKindLeaks(t *testing.T) {
	hosttest.Need(t, hosttest.Root) // to see what the process has open
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	record := recordFile(t, dir, "box1")
	round := func(form attachmenttest.Form, killedFirst bool) {
		t.Helper()
		link, k := attachmenttest.StartKernel(t, form, false, 0, "/proc/self/exe", kernelArg0, "http://api.test/hello")
		a := Attachment{Sandbox: "box1", Policy: documents(t), Record: record, Kind: form.Kind(), Link: link}
		if _, _, err := c.Attach(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		link.Close()
		k.Go()
		if killedFirst {
			k.Kill()
		} else if got, err := k.Wait(); err != nil || got != "http://api.test/hello 200 6\n" {
			t.Fatalf("%s: %v %s", form, err, got)
		}
		if err := c.Detach(t.Context(), "box1"); err != nil {
			t.Fatal(err)
		}
	}
	all := func() {
		for _, form := range kernelForms {
			round(form, false)
			round(form, true)
		}
	}
	pid := c.Info().PID
	all()
	waitUntilSteady(t, "process", func() int { return descriptors(t, pid) })
	before := descriptors(t, pid)
	for range 3 {
		all()
	}
	hosttest.NoMore(t, "descriptors of the process", before, func() int { return descriptors(t, pid) })
	// Control: an open attachment is counted.
	attachKernel(t, c, dir, attachmenttest.TUN, "box2")
	if n := descriptors(t, pid); n <= before {
		t.Errorf("an open attachment is not counted: %d descriptors, before %d", n, before)
	}
	if err := c.Detach(t.Context(), "box2"); err != nil {
		t.Fatal(err)
	}
}
