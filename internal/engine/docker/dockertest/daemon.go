// Package dockertest owns a Docker daemon for tests: its own data, its own socket, no
// bridge and no rule of a firewall, and an image of a few of this host's programs.
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

// Ability is what tests with a daemon need of this host.
var Ability = hosttest.Ability{Name: "dockerd", Has: func() bool { _, err := exec.LookPath("dockerd"); return err == nil }}

// Daemon is a running Docker daemon.
type Daemon struct {
	// Host is its address.
	Host string
	// Image is the name of an image that the daemon has.
	Image engine.OCI

	dir     string
	options Options

	mu  sync.Mutex
	cmd *exec.Cmd
	log *os.File
}

// startScript runs dockerd in a mount namespace of its own, and unmounts the hierarchy of control
// groups of version 2 there if there is one of version 1: crun refuses a hierarchy of version 2
// that has controllers beside one of version 1. The host's mounts do not change.
const startScript = `if [ -e /sys/fs/cgroup/memory ]; then umount /sys/fs/cgroup/unified 2>/dev/null; fi; exec dockerd --config-file "$0"`

// Options of a daemon.
type Options struct {
	// LiveRestore lets containers run on while the daemon does not.
	LiveRestore bool
	// HostMounts lets the daemon mount where this host does, for a daemon that is started again:
	// the earlier daemon's containers stay in its mount namespace.
	HostMounts bool
}

// Start starts a daemon that keeps everything below dir. The path of dir should be short, because
// it is part of the path of a socket.
func Start(dir string, o Options) (*Daemon, error) {
	config := map[string]any{
		"data-root": filepath.Join(dir, "data"), "exec-root": filepath.Join(dir, "exec"), "pidfile": filepath.Join(dir, "pid"),
		"hosts": []string{"unix://" + filepath.Join(dir, "sock")}, "live-restore": o.LiveRestore,
		"bridge": "none", "iptables": false, "ip-forward": false,
		"runtimes": map[string]any{"crun": map[string]string{"path": "/usr/bin/crun"}},
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

// Run starts the daemon again after Kill.
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
	said, _ := os.ReadFile(d.log.Name())
	return fmt.Errorf("dockerd does not answer: %w\n%s", err, said[max(len(said)-2000, 0):])
}

// Client returns a client of the daemon.
func (d *Daemon) Client() (*client.Client, error) { return client.New(client.WithHost(d.Host)) }

// Kill ends the daemon as kill -9 does. Its containers run on.
func (d *Daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it reports that it was killed
	// Its supervisor of containers dies with it. If PID 1 of the host does not wait for ended
	// processes, the next daemon would take the supervisor's PID for that of a running one.
	_ = d.endSupervisor()
	_ = os.Remove(d.supervisorFile())
}

func (d *Daemon) supervisorFile() string {
	return filepath.Join(d.dir, "exec/containerd/containerd.pid")
}

// Stop ends the daemon and all that it runs, and removes what it kept.
func (d *Daemon) Stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.log.Close()
	// The daemon ends its own supervisor of containers.
	err := d.cmd.Process.Signal(syscall.SIGTERM)
	if waited := d.cmd.Wait(); waited != nil && !errors.As(waited, new(*exec.ExitError)) {
		err = errors.Join(err, waited)
	}
	return errors.Join(err, d.endSupervisor(), d.unmount(), os.RemoveAll(d.dir))
}

// unmount undoes what a daemon that was killed has mounted on this host.
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

// endSupervisor ends containerd, which a daemon that was killed leaves.
func (d *Daemon) endSupervisor() error {
	text, err := os.ReadFile(d.supervisorFile())
	if err != nil {
		return nil // it has ended
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(command, []byte(d.dir)) {
		return nil // another process has the number by now
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}
