package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
)

// kernelPeer is the network of a sandbox on the host's kernel: a namespace whose only connection is
// an attachment. For an attachment that is only a socket, it is the host's namespace.
type kernelPeer struct {
	client string
	pid    int
	proxy  string
}

// run runs the client's job in the namespace.
func (k *kernelPeer) run(ctx context.Context, j netJob) ([]time.Duration, error) {
	program := []string{"nsenter", "--target", strconv.Itoa(k.pid), "--net", k.client}
	if k.proxy != "" {
		// The proxy resolves the host, so the client needs no address.
		program, j.Proxy, j.Dial = []string{k.client}, k.proxy, "proxy"
	}
	var out bytes.Buffer
	if err := hostCommand(ctx, &out, append(program, j.argument())...); err != nil {
		return nil, err
	}
	return readTimes(out.Bytes())
}

// kernelPeer creates a namespace that is connected by the given form of attachment.
func (r *netRig) kernelPeer(ctx context.Context, form attachmenttest.Form, mtu int) (_ *kernelPeer, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "theirs"), os.NewFile(uintptr(fds[1]), "ours")
	defer ours.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", string(form), strconv.Itoa(mtu))
	cmd.Args[0], cmd.Stderr, cmd.ExtraFiles = kernelArg0, os.Stderr, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	link, err := receiveFile(ours)
	if err != nil {
		return nil, fmt.Errorf("the namespace of %s: %w", form, err)
	}
	if form != attachmenttest.TUN && form != attachmenttest.TAP {
		peer, end, err := attachmenttest.Sockets(form)
		if err != nil {
			return nil, err
		}
		stop, err := attachmenttest.Join(form, link, peer)
		if err != nil {
			return nil, errors.Join(err, end.Close())
		}
		r.closers = append(r.closers, func() error { stop(); return nil })
		link = end
	}
	return &kernelPeer{client: r.hostArgv, pid: cmd.Process.Pid}, r.attachForm(ctx, fmt.Sprintf("%s%d", form, mtu), form.Kind(), link)
}

// attachForm attaches a descriptor until the end of the run, and takes ownership of it.
func (r *netRig) attachForm(ctx context.Context, id string, kind egress.AttachmentKind, link *os.File) error {
	_, _, err := r.attachKind(ctx, r.client, r.dir, id, manyRules, kind, link)
	if err == nil {
		r.closers = append(r.closers, func() error { return r.client.Detach(context.WithoutCancel(ctx), id) })
	}
	return errors.Join(err, link.Close())
}

// socketPeer creates the socket of an attachment without an interface.
func (r *netRig) socketPeer(ctx context.Context) (*kernelPeer, error) {
	path := filepath.Join(r.dir, "proxy.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	link, err := l.File()
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return &kernelPeer{client: r.hostArgv, proxy: "unix:" + path}, r.attachForm(ctx, "socket", egress.Proxy, link)
}

// receiveFile receives a descriptor from a namespace's process.
func receiveFile(from *os.File) (*os.File, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("the namespace's process sent no device"))
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(got[0]), "device"), nil
}

// runKernelPeer creates a device in its namespace, sends it over descriptor 3 and keeps the
// namespace until its input ends.
func runKernelPeer() {
	mtu, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fail(err)
	}
	open := attachment.NewEthernetTap
	if attachmenttest.Form(os.Args[1]) == attachmenttest.TUN {
		open = attachment.NewTap
	}
	link, err := open("eth0", mtu)
	if err != nil {
		fail(err)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(link.Fd())), nil, 0); err != nil {
		fail(err)
	}
	link.Close()
	waitForInputEnd()
}
