package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
)

// A container without a network interface reaches the gateway through a program of the guest, which
// the engine starts inside, as it does for streams into the sandbox. One process of this host
// carries the network of a container: it connects each stream of that program to a socket on which
// the gateway listens. When the process ends, another one takes over.

const (
	// socketsName is the directory of the sockets in the engine's directory.
	socketsName = "egress"
	lockName    = "lock"
	// takeOverPause is how often a process tries to carry a network that another one carries.
	takeOverPause = time.Second
	// maxCarrierPause is the longest pause between attempts to start the program inside, which fail
	// while the sandbox is frozen.
	maxCarrierPause = 8 * time.Second
)

// socketDir returns the directory of the socket of a sandbox's network.
func (e *Engine) socketDir(id string) string { return filepath.Join(e.dir, socketsName, id) }

// socketOwners lists the sandboxes that have a socket.
func (e *Engine) socketOwners() (list []string, err error) {
	entries, err := os.ReadDir(filepath.Join(e.dir, socketsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if validID(entry.Name()) {
			list = append(list, entry.Name())
		}
	}
	return list, err
}

// connectProxy creates the socket of a sandbox's network, attaches it to the gateway, and starts
// carrying the network.
func (e *Engine) connectProxy(ctx context.Context, container string, spec *engine.Spec) error {
	dir := e.socketDir(spec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := e.lockNetwork(spec.ID)
	if err != nil {
		return err
	}
	gateway, err := sandboxdir.ListenGateway(dir)
	if err == nil {
		spec.Boot.Config, err = spec.Egress.Attach(ctx, gateway)
		err = errors.Join(err, gateway.Close())
	}
	var session *relay.Inward
	if err == nil {
		session, err = e.startCarrier(ctx, container, spec.Image.Guest)
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	if !e.beginCarrying(container) {
		return errors.Join(errors.New("the engine is closed"), session.Close(), lock.Close())
	}
	go e.carry(spec.ID, container, spec.Image.Guest, lock, session)
	return nil
}

// lockNetwork makes this process the one that carries a sandbox's network. The lock ends with the
// process.
func (e *Engine) lockNetwork(id string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(e.socketDir(id), lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(os.NewSyscallError("flock", err), lock.Close())
	}
	return lock, nil
}

// startCarrier starts the program in the container that serves the proxy and the name server.
func (e *Engine) startCarrier(ctx context.Context, container, guest string) (*relay.Inward, error) {
	exec, err := e.client.ExecCreate(ctx, container, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: []string{guest, guestboot.GatewayRole},
	})
	if err != nil {
		return nil, err
	}
	attached, err := e.client.ExecAttach(ctx, exec.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	conn := newExecConnection(attached.HijackedResponse)
	session, err := relay.NewInward(ctx, conn)
	if message := conn.errors(); err != nil && message != "" {
		err = fmt.Errorf("%w: %s", err, message)
	}
	return session, err
}

// beginCarrying reports whether a goroutine may begin to carry a container's network: only one does,
// and none after Close.
func (e *Engine) beginCarrying(container string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.carriers[container] || e.life.Err() != nil {
		return false
	}
	e.carriers[container] = true
	e.carried.Add(1)
	return true
}

func (e *Engine) endCarrying(container string) {
	e.mu.Lock()
	delete(e.carriers, container)
	e.mu.Unlock()
	e.carried.Done()
}

// carryLater makes this process carry the network of a container when no other process does.
func (e *Engine) carryLater(id, container, guest string) {
	if !e.beginCarrying(container) {
		return
	}
	go func() {
		for {
			lock, err := e.lockNetwork(id)
			if err == nil {
				e.carry(id, container, guest, lock, nil)
				return
			}
			// Without the directory, the sandbox was removed.
			if errors.Is(err, fs.ErrNotExist) || !e.pause(takeOverPause) {
				e.endCarrying(container)
				return
			}
		}
	}()
}

// pause waits, and reports whether the engine is still open.
func (e *Engine) pause(d time.Duration) bool {
	select {
	case <-e.life.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// carry carries the network of a container until the container or the engine ends. It starts the
// program inside again if that ends, because a program in the sandbox may have killed it, and the
// daemon may have been restarted.
func (e *Engine) carry(id, container, guest string, lock *os.File, session *relay.Inward) {
	defer e.endCarrying(container)
	defer lock.Close()
	for wait := retryPause; ; wait = min(2*wait, maxCarrierPause) {
		if session != nil {
			e.serveCarrier(id, session)
			wait = retryPause
		}
		if !e.pause(wait) || e.ended(container) {
			return
		}
		var err error
		ctx, cancel := context.WithTimeout(e.life, cleanupTime)
		if session, err = e.startCarrier(ctx, container, guest); err != nil && e.life.Err() == nil {
			e.o.Log.Warn("network of a sandbox not carried", "sandbox", id, "err", err)
		}
		cancel()
	}
}

// serveCarrier connects the streams of a session to the gateway, until the session or the engine
// ends.
func (e *Engine) serveCarrier(id string, session *relay.Inward) {
	stop := context.AfterFunc(e.life, func() { _ = session.Close() })
	defer stop()
	session.Serve(func() (relay.Gateway, error) {
		conn, err := sandboxdir.DialGateway(e.life, e.socketDir(id))
		if err != nil {
			return nil, err
		}
		return conn.(*net.UnixConn), nil //nolint:forcetypeassert // the network is unix
	})
}

// ended reports whether a container has ended for good. A daemon that does not answer does not mean
// that.
func (e *Engine) ended(container string) bool {
	ctx, cancel := context.WithTimeout(e.life, listTime)
	defer cancel()
	c, err := e.client.ContainerInspect(ctx, container, client.ContainerInspectOptions{})
	return cerrdefs.IsNotFound(err) || err == nil && (c.Container.State == nil || !c.Container.State.Running)
}
