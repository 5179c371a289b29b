package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/relay"
)

// channelDescriptor is the descriptor of the sandbox's end of its channel in the child that creates
// the kernel: the pipe to read from, followed by the pipe to write to.
const channelDescriptor = 5

// Names of the channel's two pipes in the sandbox's directory. They have names, so that the next
// server can take over the channel. One process at a time owns the channel, by a lock on the pipe
// that the process reads. All others use port forwarding.
const (
	toGuestName   = "to-guest"
	fromGuestName = "from-guest"
)

// makeChannel creates a channel's pipes in a directory and returns the sandbox's ends and ours. The
// sandbox also holds its input pipe open for writing, so that it sees no end of file when a server
// dies.
func makeChannel(dir string) (sandboxEnds []*os.File, channel *relay.Channel, err error) {
	for _, name := range []string{toGuestName, fromGuestName} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			return nil, nil, fmt.Errorf("channel: %w", err)
		}
	}
	if channel, err = openChannel(dir); err != nil {
		return nil, nil, err
	}
	for _, end := range []struct {
		name  string
		flags int
	}{{toGuestName, unix.O_RDWR}, {fromGuestName, unix.O_WRONLY}} {
		// gVisor takes over the descriptors, so they must not be registered with Go's poller.
		fd, err := unix.Open(filepath.Join(dir, end.name), end.flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			closeFiles(sandboxEnds)
			return nil, nil, errors.Join(fmt.Errorf("channel: %w", err), channel.Close())
		}
		sandboxEnds = append(sandboxEnds, os.NewFile(uintptr(fd), end.name))
	}
	return sandboxEnds, channel, nil
}

// openChannel opens our end and sends the guest a greeting.
func openChannel(dir string) (*relay.Channel, error) {
	read, err := os.OpenFile(filepath.Join(dir, fromGuestName), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	if err := unix.Flock(int(read.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		read.Close()
		return nil, fmt.Errorf("channel: %w", err)
	}
	// Opened for reading and writing, because the sandbox's own end may not be open yet.
	write, err := os.OpenFile(filepath.Join(dir, toGuestName), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		read.Close()
		return nil, fmt.Errorf("channel: %w", err)
	}
	enlarge(read, write)
	return relay.NewChannel(read, write)
}

// pipeCapacity is the capacity of each pipe of a channel, unless a limit on the user's pipes
// applies. A large pipe is less often empty or full, and each time the other side has to be woken.
const pipeCapacity = 256 << 10

// enlarge enlarges pipes of root. Other users have a limit for all pipes together, beyond which
// each later pipe has one or two pages.
func enlarge(pipes ...*os.File) {
	if os.Geteuid() != 0 {
		return
	}
	for _, p := range pipes {
		raw, err := p.SyscallConn()
		if err != nil {
			continue
		}
		_ = raw.Control(func(fd uintptr) {
			// A smaller pipe works as well.
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeCapacity)
		})
	}
}

// openedChannel returns the sandbox's channel, and opens it on first use. It returns nil if another
// process owns the channel, if the channel is broken, or if the sandbox is of an earlier version
// and has no channel.
func (b *instance) openedChannel(ctx context.Context) *relay.Channel {
	// A guest that does not read delays the opening, and b.mu is needed to end the sandbox.
	// Therefore the channel is opened without that lock, by one goroutine at a time.
	select {
	case b.opening <- struct{}{}:
		defer func() { <-b.opening }()
	case <-ctx.Done():
		return nil
	}
	b.mu.Lock()
	channel, dir := b.channel, b.dir
	b.mu.Unlock()
	if channel != nil {
		if channel.Broken() {
			return nil
		}
		return channel
	}
	channel, err := openChannel(dir)
	if err != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over() || b.dir != dir {
		_ = channel.Close() // no other goroutine has it
		return nil
	}
	b.channel = channel
	return channel
}

// dropChannel closes the channel and all its streams. The caller holds b.mu.
func (b *instance) dropChannel() {
	if b.channel != nil {
		_ = b.channel.Close() // its streams end, even if this fails
		b.channel = nil
	}
}

// remindGuest makes the guest check its channel, also if another process has opened it.
func (b *instance) remindGuest() {
	b.mu.Lock()
	path := filepath.Join(b.dir, toGuestName)
	b.mu.Unlock()
	// A sandbox of an earlier version has no channel, and the channel of an ended sandbox has no
	// reader. In both cases the guest has nothing to check.
	pipe, err := os.OpenFile(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer pipe.Close()
	if err := relay.RemindGuest(pipe); err != nil {
		b.e.log.Warn("cannot make the guest check its channel", "sandbox", b.rec.ID, "err", err)
	}
}
