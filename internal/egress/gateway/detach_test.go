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

// countAttached returns the number of sandboxes that are attached to the process.
func countAttached(t *testing.T, c *Client) int {
	t.Helper()
	list, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// waitForNamespaceRemoval creates a namespace, kills its process and waits until the kernel has
// removed it. The kernel removes namespaces in order, so those that lost their processes earlier
// have been removed too.
func waitForNamespaceRemoval(t *testing.T) {
	t.Helper()
	link, k := attachmenttest.StartTap(t, false, 0, "sleep", "100000")
	alive := attachmenttest.WatchNamespace(t, k.PID())
	if !alive() {
		t.Fatal("control: a namespace with a process does not count as alive")
	}
	k.Kill()
	link.Close()
	hosttest.Eventually(t, "a namespace without a process is removed", func() bool { return !alive() })
}

// If a sandbox is killed, its device stays with the gateway, and so does the network namespace.
// Detach ends both.
func TestDetachEndsDeviceNamespace(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, form := range []attachmenttest.Form{attachmenttest.TUN, attachmenttest.TAP} {
		t.Run(string(form), func(t *testing.T) {
			dir := newEnvironment(t)
			c := mustConnect(t, dir, Options{})
			k := attachKernel(t, c, dir, form, "box1")
			alive := attachmenttest.WatchNamespace(t, k.PID())
			k.Kill()
			waitForNamespaceRemoval(t)
			if !alive() || countAttached(t, c) != 1 {
				t.Fatalf("the gateway does not keep the namespace: alive %v, attached %d", alive(), countAttached(t, c))
			}
			if err := c.Detach(t.Context(), "box1"); err != nil {
				t.Fatal(err)
			}
			hosttest.Eventually(t, "the namespace is removed", func() bool { return !alive() })
			if n := countAttached(t, c); n != 0 {
				t.Errorf("%d sandboxes are attached after Detach, want 0", n)
			}
		})
	}
}

// If the kernel reports that the sandbox's end is closed, the gateway detaches the sandbox.
func TestClosedSocketDetachesSandbox(t *testing.T) {
	for _, form := range []attachmenttest.Form{attachmenttest.Messages, attachmenttest.Stream} {
		t.Run(string(form), func(t *testing.T) {
			dir := newEnvironment(t)
			c := mustConnect(t, dir, Options{})
			a, peer := attachSocket(t, dir, form, "box1")
			if _, _, err := c.Attach(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			a.Link.Close()
			if countAttached(t, c) != 1 {
				t.Fatal("control: the sandbox is not attached")
			}
			peer.Close()
			hosttest.Eventually(t, "the sandbox is detached", func() bool { return countAttached(t, c) == 0 })
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

// If the gateway is killed, its ends of all attachments are closed. A sandbox then has no device,
// or reads the end of its socket, and its namespace ends with its last process.
func TestKilledGatewayLeavesNoResources(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	namespaces := map[attachmenttest.Form]func() bool{}
	kernels := map[attachmenttest.Form]*attachmenttest.Kernel{}
	for _, form := range []attachmenttest.Form{attachmenttest.TUN, attachmenttest.TAP} {
		kernels[form] = attachKernel(t, c, dir, form, string(form))
		namespaces[form] = attachmenttest.WatchNamespace(t, kernels[form].PID())
		if !hasDevice(t, kernels[form].PID()) {
			t.Fatalf("control: the namespace of %s has no device", form)
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
		t.Fatalf("control: dial the proxy's socket: %v", err)
	} else {
		conn.Close()
	}
	if n := countAttached(t, c); n != 6 {
		t.Fatalf("%d sandboxes are attached, want 6", n)
	}
	if err := unix.Kill(c.Info().PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	awaitEnd(t, dir)
	for form, k := range kernels {
		hosttest.Eventually(t, fmt.Sprintf("the device of %s is removed", form), func() bool { return !hasDevice(t, k.PID()) })
		k.Kill()
		hosttest.Eventually(t, fmt.Sprintf("the namespace of %s is removed", form), func() bool { return !namespaces[form]() })
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
			t.Errorf("the sandbox's end of %s: got %v, want the end of the connection", form, err)
		}
	}
	if conn, err := socket.Dial(t.Context()); err == nil {
		conn.Close()
		t.Error("the proxy's socket still has a listener")
	}
	// A new gateway process has no sandboxes.
	if n := countAttached(t, mustConnect(t, dir, Options{})); n != 0 {
		t.Errorf("%d sandboxes are attached to the new process, want 0", n)
	}
}

// hasDevice reports whether a process's network namespace has the device.
func hasDevice(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), "eth0:")
}

// An attachment leaves no descriptors in the process, however its sandbox ends.
func TestAttachmentsLeaveNoDescriptors(t *testing.T) {
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
			t.Fatalf("the program in a sandbox of the form %s: %v %s", form, err, got)
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
	hosttest.EventuallyAtMost(t, "descriptors of the process", before, func() int { return descriptors(t, pid) })
	// Control: an open attachment is counted.
	attachKernel(t, c, dir, attachmenttest.TUN, "box2")
	if n := descriptors(t, pid); n <= before {
		t.Errorf("an open attachment is not counted: %d descriptors, before %d", n, before)
	}
	if err := c.Detach(t.Context(), "box2"); err != nil {
		t.Fatal(err)
	}
}
