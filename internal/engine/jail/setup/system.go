package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// system mounts /proc, /dev and /sys.
func (b *builder) system() error {
	for _, dir := range []string{"proc", "dev", "sys"} {
		if err := os.Mkdir(filepath.Join(b.root, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := b.proc(); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if err := b.dev(); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	if err := b.sys(); err != nil {
		return fmt.Errorf("/sys: %w", err)
	}
	return nil
}

// shownProc lists the entries of /proc that stay visible, besides those of processes. All others
// are covered, including entries of later kernels: /proc/keys, kallsyms, kcore, config.gz,
// interrupts and the like reveal the host and its kernel to an attacker.
var shownProc = map[string]bool{
	"self": true, "thread-self": true, "mounts": true, "net": true, "sysvipc": true, // of the process or its namespaces
	"filesystems": true, "loadavg": true, "version": true, "uptime": true, "cgroups": true,
	"sys":     true,                                                                // read-only
	"meminfo": true, "cpuinfo": true, "stat": true, "swaps": true, "cmdline": true, // replaced
}

// proc mounts the /proc of the sandbox's PID namespace and covers entries of the host.
func (b *builder) proc() error {
	dir := filepath.Join(b.root, "proc")
	if err := unix.Mount("proc", dir, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if !b.r.Users {
		// The guest is not root, and its name server listens on port 53. The setting is that of the
		// sandbox's network namespace.
		if err := os.WriteFile(filepath.Join(dir, "sys/net/ipv4/ip_unprivileged_port_start"), []byte("0"), 0); err != nil {
			return err
		}
	}
	// This comes first, because the mount includes the mounts below it.
	if err := bindReadOnly(filepath.Join(dir, "sys"), filepath.Join(dir, "sys")); err != nil {
		return err
	}
	replaced, err := b.replacements()
	if err != nil {
		return err
	}
	for name, text := range replaced {
		source := filepath.Join(b.base, "proc-"+filepath.Base(name))
		if err := os.WriteFile(source, []byte(text), 0o444); err != nil {
			return err
		}
		if err := bindReadOnly(source, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if shownProc[name] || strings.Trim(name, "0123456789") == "" || e.Type()&fs.ModeSymlink != 0 {
			continue
		}
		empty := "empty"
		if e.IsDir() {
			empty = "empty.d"
		}
		if err := bindReadOnly(filepath.Join(b.base, empty), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// bindReadOnly mounts source read-only at target.
func bindReadOnly(source, target string) error {
	tree, err := openTree(source)
	if err != nil {
		return &fs.PathError{Op: "show", Path: source, Err: err}
	}
	defer unix.Close(tree)
	if err := moveTo(tree, target, true); err != nil {
		return &fs.PathError{Op: "show", Path: target, Err: err}
	}
	return nil
}

// devices lists devices of the host that have no state.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// dev creates a /dev that contains nothing of the host except devices without a state.
func (b *builder) dev() error {
	dir := filepath.Join(b.root, "dev")
	// It has room for few files only, so that it cannot be used to exceed the disk limit.
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=64k,nr_inodes=64,mode=755"); err != nil {
		return err
	}
	for _, name := range devices {
		path := filepath.Join(dir, name)
		if err := makeFile(path, 0o666); err != nil {
			return err
		}
		tree, err := openTree(filepath.Join("/dev", name))
		if err != nil {
			return &fs.PathError{Op: "show", Path: name, Err: err}
		}
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		unix.Close(tree)
		if err != nil {
			return &fs.PathError{Op: "show", Path: name, Err: err}
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		name, kind, options string
		flags               uintptr
	}{
		{"pts", "devpts", "newinstance,ptmxmode=0666,mode=620", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"shm", "tmpfs", fmt.Sprintf("size=%d,nr_inodes=16384,mode=1777", b.r.Limits.ShmBytes), unix.MS_NOSUID | unix.MS_NODEV},
		{"mqueue", "mqueue", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		path := filepath.Join(dir, m.name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, path, m.kind, m.flags, m.options); err != nil && m.kind != "mqueue" {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_RDONLY, "")
}

// sys creates a /sys with the sandbox's own control groups and nothing else, because devices,
// firmware and modules there are the host's.
func (b *builder) sys() error {
	dir := filepath.Join(b.root, "sys")
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=16k,nr_inodes=64,mode=755"); err != nil {
		return err
	}
	for name, source := range b.r.Groups {
		path := filepath.Join(dir, "fs/cgroup", name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := bindReadOnly(source, path); err != nil {
			return err
		}
	}
	if err := b.processors(filepath.Join(dir, "devices/system/cpu")); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
}
