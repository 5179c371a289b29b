package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
)

// Dial implements engine.Engine. Streams use the sandbox's channel, which one process owns. In any
// other process each stream is a forwarded port.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := engine.CheckPort(port); err != nil {
		return nil, err
	}
	b, err := e.find(id)
	if err != nil {
		return nil, err
	}
	b.watch()
	if b.over() {
		return nil, engine.HasStopped(id, nil)
	}
	if channel := b.openedChannel(ctx); channel != nil {
		conn, err := channel.Dial(ctx, port)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, relay.ErrRefused) || ctx.Err() != nil {
			return nil, dialFault(id, port, err)
		}
		// A forwarded port works without the channel, and shows whether the guest is alive.
		e.log.Info("the guest's channel failed; forwarding a port instead", "sandbox", id, "err", err)
	}
	channel, err := b.forwardWithRetry(ctx)
	if err != nil {
		return nil, dialFault(id, port, err)
	}
	conn, err := relay.Dial(ctx, channel, port)
	if err != nil {
		return nil, dialFault(id, port, err)
	}
	return conn, nil
}

const (
	// noDescriptor is a part of the error of a sandbox's kernel that has no descriptor left and
	// cannot accept a stream.
	noDescriptor = "stream FD is required"
	// descriptorTimeout bounds how long Dial waits for a free descriptor. Programs that used up the
	// descriptors free them when they end, which takes the kernel a moment.
	descriptorTimeout = 3 * time.Second
	descriptorPause   = 50 * time.Millisecond
)

// forwardWithRetry repeats forward while the sandbox's kernel has no free descriptor.
func (b *instance) forwardWithRetry(ctx context.Context) (net.Conn, error) {
	for started := time.Now(); ; {
		conn, err := b.forward(ctx)
		if err == nil || !strings.Contains(err.Error(), noDescriptor) || time.Since(started) > descriptorTimeout {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(descriptorPause):
		}
	}
}

// forward opens a stream to the guest's relay. gVisor receives one end of a socket pair and
// connects it to the relay on the sandbox's loopback, which connects to ports. This needs no
// network and works for any process that can open the control socket. The relay is necessary
// because gVisor drops data that does not fit into the port's send buffer.
func (b *instance) forward(ctx context.Context) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	serverEnd, kernelEnd := os.NewFile(uintptr(fds[0]), "dial"), os.NewFile(uintptr(fds[1]), "dial")
	defer serverEnd.Close() // FileConn uses a copy
	args := &boot.PortForwardOpts{
		FilePayload: urpc.FilePayload{Files: []*os.File{kernelEnd}},
		ContainerID: b.rec.Kernel,
		Port:        guestboot.RelayPort,
	}
	err = b.conns.call(ctx, boot.ContMgrPortForward, args, nil)
	kernelEnd.Close() // the sandbox has a copy; with ours open, we would not notice when it is closed
	if err != nil {
		return nil, err
	}
	return net.FileConn(serverEnd)
}

// dialFault converts an error of Dial into a fault.
func dialFault(id string, port int, err error) error {
	if strings.Contains(err.Error(), noDescriptor) {
		return fault.Wrap(err, fault.Unavailable, "descriptors_exhausted", fmt.Sprintf("the programs in sandbox %q have used up its file descriptors", id)).
			WithHint("end some of them, or create a new sandbox")
	}
	if errors.Is(err, relay.ErrRefused) {
		return engine.PortClosed(port, err)
	}
	// If the relay's port has no listener, the guest has ended.
	_, remote := errors.AsType[urpc.RemoteError](err)
	stopped := remote && strings.Contains(err.Error(), "refused") || errors.Is(err, io.EOF)
	if stopped || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return engine.HasStopped(id, err)
	}
	return fmt.Errorf("dial %s:%d: %w", id, port, err)
}
