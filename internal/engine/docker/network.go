package docker

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/tun"
	"github.com/crannog/crannog/internal/engine"
)

// egressKinds returns how this engine can connect sandboxes to the gateway. It uses no bridge of
// the daemon: a container on a bridge reaches the host, even if the bridge is internal.
func (e *Engine) egressKinds() []engine.EgressKind {
	// A tap device is created from outside, in the network namespace of a container on this host. A
	// user-space kernel would ignore the device.
	if !e.o.NoDevice && e.local && os.Geteuid() == 0 && !e.userspaceKernel() && unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) == nil {
		return []engine.EgressKind{engine.EgressNone, engine.EgressTap}
	}
	return []engine.EgressKind{engine.EgressNone, engine.EgressProxy}
}

// connect creates a container's network and attaches it to the gateway before the guest runs.
func (e *Engine) connect(ctx context.Context, container string, spec *engine.Spec) error {
	if !spec.Egress.Connected() {
		return nil
	}
	if spec.Egress.Kind == engine.EgressProxy {
		return e.connectProxy(ctx, container, spec)
	}
	namespace, err := e.openNamespace(ctx, container)
	if err != nil {
		return err
	}
	defer namespace.Close()
	device, err := createDevice(namespace)
	if err != nil {
		return err
	}
	defer device.Close()
	spec.Boot.Config, err = spec.Egress.Attach(ctx, device)
	return err
}

// openNamespace opens the network namespace of a running container.
func (e *Engine) openNamespace(ctx context.Context, container string) (*os.File, error) {
	pid, err := e.processOf(ctx, container)
	if err != nil {
		return nil, err
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	// Without this check, the device could appear in the host's network.
	if err := inContainer(pid, container); err != nil {
		namespace.Close()
		return nil, err
	}
	return namespace, nil
}

// createDevice creates the network device in a namespace, on a thread that is not used again.
func createDevice(namespace *os.File) (device *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The goroutine ends with its thread locked, which ends the thread as well.
		runtime.LockOSThread()
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter the container's network: %w", err)
			return
		}
		device, err = tun.New("eth0", 0)
	}()
	<-done
	return device, err
}
