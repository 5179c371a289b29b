// Package dockertest owns a Docker daemon for tests. It has its own data and socket, no bridge and
// no firewall rules, and an image with a few of this host's programs.
package dockertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Requirement is the requirement of tests with a daemon on this host.
var Requirement = hosttest.Requirement{Name: "dockerd", Has: func() bool { _, err := exec.LookPath("dockerd"); return err == nil }}

// Daemon is a running Docker daemon.
type Daemon struct {
	// Host is the daemon's address.
	Host string
	// Image is an image that the daemon has.
	Image engine.OCI

	dir     string
	options Options

	mu  sync.Mutex
	cmd *exec.Cmd
	log *os.File
}

// startScript runs dockerd in its own mount namespace. On a host with cgroup version 1, the script
// unmounts the hierarchy of version 2 in that namespace, because crun refuses a mixture in which
// version 2 has controllers. The host's mounts do not change.
const startScript = `if [ -e /sys/fs/cgroup/memory ]; then umount /sys/fs/cgroup/unified 2>/dev/null; fi; exec dockerd --config-file "$0"`

// Options configure a daemon.
type Options struct {
	// LiveRestore lets containers continue while the daemon is stopped.
	LiveRestore bool
	// HostMounts runs the daemon in the host's mount namespace. A daemon that is restarted needs
	// it, because containers of the earlier daemon stay in that daemon's mount namespace.
	HostMounts bool
	// Runsc is the path of gVisor's program, or "" for a daemon without it.
	Runsc string
}

// runtimes returns the runtimes of the daemon beside its default one. With Runsc, one of them uses
// the seccomp profile of a container and one ignores it, as gVisor does by default.
func (o Options) runtimes() map[string]any {
	all := map[string]any{"crun": map[string]string{"path": "/usr/bin/crun"}}
	if o.Runsc != "" {
		arguments := []string{"--platform=systrap", "--network=none"}
		all["runsc"] = map[string]any{"path": o.Runsc, "runtimeArgs": append(arguments, "--oci-seccomp")}
		all["runsc-plain"] = map[string]any{"path": o.Runsc, "runtimeArgs": arguments}
	}
	return all
}

// Start starts a daemon that stores everything below dir. The path of dir should be short, because
// it becomes part of a socket's path.
func Start(dir string, o Options) (*Daemon, error) {
	config := map[string]any{
		"data-root": filepath.Join(dir, "data"), "exec-root": filepath.Join(dir, "exec"), "pidfile": filepath.Join(dir, "pid"),
		"hosts": []string{"unix://" + filepath.Join(dir, "sock")}, "live-restore": o.LiveRestore,
		"bridge": "none", "iptables": false, "ip-forward": false,
		"runtimes": o.runtimes(),
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "daemon.json"), text, 0o600)); err != nil {
		return nil, err
	}
	d := &Daemon{Host: "unix://" + filepath.Join(dir, "sock"), dir: dir, options: o}
	if d.log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err := d.Run(); err != nil {
		return nil, err
	}
	return d, nil
}

// Run starts the daemon, at first or again after Kill.
func (d *Daemon) Run() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cmd = exec.Command("unshare", "-m", "--propagation", "slave", "sh", "-c", startScript, filepath.Join(d.dir, "daemon.json")) //nolint:noctx // TestMain has no context
	if d.options.HostMounts {
		d.cmd = exec.Command("dockerd", "--config-file", filepath.Join(d.dir, "daemon.json")) //nolint:noctx // as above
	}
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	c, err := d.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	end := time.Now().Add(hosttest.Patience(hosttest.Hang))
	for {
		if _, err = c.Ping(context.Background(), client.PingOptions{}); err == nil {
			return nil
		}
		if time.Now().After(end) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	output, _ := os.ReadFile(d.log.Name())
	return fmt.Errorf("dockerd does not answer: %w\n%s", err, output[max(len(output)-2000, 0):])
}

// Client returns a client of the daemon.
func (d *Daemon) Client() (*client.Client, error) { return client.New(client.WithHost(d.Host)) }

// Kill kills the daemon with SIGKILL. Its containers continue.
func (d *Daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // its error reports only that the daemon was killed
	// Kill the daemon's containerd too. If PID 1 of the host does not reap it, the next daemon
	// would mistake the zombie for a running containerd.
	_ = d.killContainerd()
	_ = os.Remove(d.containerdPIDFile())
}

// containerdPIDFile is the file in which the daemon's containerd stores its process ID.
func (d *Daemon) containerdPIDFile() string {
	return filepath.Join(d.dir, "exec/containerd/containerd.pid")
}

// Stop ends the daemon and its containers, and removes its files.
func (d *Daemon) Stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.log.Close()
	// The daemon ends its own containerd.
	err := d.cmd.Process.Signal(syscall.SIGTERM)
	if waitErr := d.cmd.Wait(); waitErr != nil && !errors.As(waitErr, new(*exec.ExitError)) {
		err = errors.Join(err, waitErr)
	}
	return errors.Join(err, d.killContainerd(), d.unmount(), os.RemoveAll(d.dir))
}

// unmount removes the mounts that a killed daemon has left on this host.
func (d *Daemon) unmount() error {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], d.dir+"/") {
			err = errors.Join(err, unix.Unmount(fields[1], unix.MNT_DETACH))
		}
	}
	return err
}

// killContainerd kills containerd, which outlives a killed daemon.
func (d *Daemon) killContainerd() error {
	text, err := os.ReadFile(d.containerdPIDFile())
	if err != nil {
		return nil // containerd has ended
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(command, []byte(d.dir)) {
		return nil // another process has reused the PID
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
