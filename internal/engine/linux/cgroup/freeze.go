package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// freezer is the version 1 controller that freezes processes. Version 2 needs none.
const freezer = "freezer"

// Freezes reports whether groups that CreateFor makes can be frozen.
func (t *Tree) Freezes() bool { return t != nil && (t.unified != "" || t.freezer != "") }

// freezeFile returns the file that freezes the group, the file with its state, and the values for
// frozen and thawed.
func (g *Group) freezeFile() (path, state, frozen, thawed string) {
	if g == nil {
		return "", "", "", ""
	}
	if dir := g.Dirs[unified]; dir != "" {
		return filepath.Join(dir, "cgroup.freeze"), filepath.Join(dir, "cgroup.events"), "1", "0"
	}
	if dir := g.Dirs[freezer]; dir != "" {
		path := filepath.Join(dir, "freezer.state")
		return path, path, "FROZEN", "THAWED"
	}
	return "", "", "", ""
}

// freezeTimeout bounds how long the kernel may take to freeze all processes of a group.
const freezeTimeout = 10 * time.Second

// Freeze stops all processes of the group, or lets them continue, and returns when that has
// happened. Thawing a group that was removed, or that cannot be frozen, succeeds.
func (g *Group) Freeze(stop bool) error {
	path, _, frozen, thawed := g.freezeFile()
	value := thawed
	if stop {
		value = frozen
	}
	if path == "" {
		if stop {
			return errors.New("cgroup: this group cannot be frozen")
		}
		return nil
	}
	deadline := time.Now().Add(freezeTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		// Version 1 finds newly started processes only when the file is written again.
		if err := write(path, value); errors.Is(err, fs.ErrNotExist) && !stop {
			return nil
		} else if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		if frozen, err := g.Frozen(); err != nil || frozen == stop {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup: %s is not %q after %s", path, value, freezeTimeout)
		}
		time.Sleep(wait)
	}
}

// Frozen reports whether all processes of the group are stopped.
func (g *Group) Frozen() (bool, error) {
	_, state, frozen, _ := g.freezeFile()
	if state == "" {
		return false, nil
	}
	if g.Dirs[unified] != "" {
		return keyed(state, "frozen") == 1, nil
	}
	data, err := os.ReadFile(state)
	if err != nil {
		return false, fmt.Errorf("cgroup: %w", err)
	}
	return strings.TrimSpace(string(data)) == frozen, nil
}

// OnOOM calls notify once when a version 1 group reaches its memory limit. In version 2 the kernel
// kills the whole group by itself. The caller calls stop before it removes the group.
func (g *Group) OnOOM(notify func()) (stop func(), err error) {
	dir := g.Dirs["memory"]
	if dir == "" {
		return func() {}, nil
	}
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	events := os.NewFile(uintptr(fd), "oom")
	if err := write(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup: %w", err), events.Close())
	}
	go func() {
		var count [8]byte
		// The kernel also sends an event when the group is removed.
		if _, err := events.Read(count[:]); err == nil {
			if _, err := os.Stat(dir); err == nil {
				notify()
			}
		}
	}()
	if g.OOMKills() > 0 {
		go notify() // the limit was hit before the event was registered
	}
	return func() { _ = events.Close() }, nil
}

// Shown returns the group's directories, by the names below /sys/fs/cgroup under which programs
// look for them.
func (g *Group) Shown() map[string]string {
	if g == nil {
		return nil
	}
	if dir := g.Dirs[unified]; dir != "" {
		return map[string]string{"": dir}
	}
	shown := map[string]string{}
	for _, controller := range []string{"memory", "cpu", "cpuacct", "pids"} {
		if dir := g.Dirs[controller]; dir != "" {
			shown[controller] = dir
		}
	}
	return shown
}
