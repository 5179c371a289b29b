package enginetest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openProbe returns an attempt that opens one of the files which match the patterns. It neither
// reads nor writes the file.
func openProbe(flags int, patterns ...string) func() error {
	return func() error {
		lastErr := error(unix.ENOENT)
		for _, pattern := range patterns {
			for _, path := range glob(pattern) {
				f, err := os.OpenFile(path, flags, 0)
				if err == nil {
					return f.Close()
				}
				lastErr = err
			}
		}
		return lastErr
	}
}

// glob returns the paths that match a pattern.
func glob(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		panic(err)
	}
	return paths
}

// ownFuse is the reason why /dev/fuse may be opened.
const ownFuse = "its file systems are in the sandbox's own kernel"

// fileProbes holds attempts to open files through which the machine's kernel can be read or
// changed.
var fileProbes = map[string]probe{
	"open-kcore":        {try: openProbe(os.O_RDONLY, "/proc/kcore"), lacks: noSuchFile},
	"open-kmsg":         {try: openProbe(os.O_RDONLY, "/dev/kmsg"), lacks: noSuchFile},
	"open-mem":          {try: openProbe(os.O_RDONLY, "/dev/mem"), lacks: noSuchFile},
	"open-port":         {try: openProbe(os.O_RDONLY, "/dev/port"), lacks: noSuchFile},
	"open-msr":          {try: openProbe(os.O_RDONLY, "/dev/cpu/0/msr"), lacks: noSuchFile},
	"open-disk":         {try: openProbe(os.O_RDONLY, "/dev/[svx]d[a-z]", "/dev/xvd[a-z]", "/dev/nvme[0-9]n[0-9]", "/dev/loop[0-9]"), lacks: noSuchFile},
	"open-loop-control": {try: openProbe(os.O_RDWR, "/dev/loop-control"), lacks: noSuchFile},
	"open-kvm":          {try: openProbe(os.O_RDWR, "/dev/kvm"), lacks: noSuchFile},
	"open-fuse": {try: openProbe(os.O_RDWR, "/dev/fuse"), lacks: noSuchFile, allowed: map[persona]string{
		asUser: ownFuse, asRoot: ownFuse, asOwner: ownFuse,
	}},
	"write-core-pattern":  {try: openProbe(os.O_WRONLY, "/proc/sys/kernel/core_pattern")},
	"write-modprobe":      {try: openProbe(os.O_WRONLY, "/proc/sys/kernel/modprobe"), lacks: noSuchFile},
	"write-drop-caches":   {try: openProbe(os.O_WRONLY, "/proc/sys/vm/drop_caches")},
	"write-uevent-helper": {try: openProbe(os.O_WRONLY, "/sys/kernel/uevent_helper", "/proc/sys/kernel/hotplug"), lacks: noSuchFile},
	"write-sysrq": {try: openProbe(os.O_WRONLY, "/proc/sysrq-trigger"), lacks: noSuchFile, allowed: map[persona]string{
		asRoot: "a file of the sandbox's own kernel that does nothing",
	}},
	"write-sysfs":         {try: openProbe(os.O_WRONLY, "/sys/class/net/lo/uevent", "/sys/kernel/mm/*/enabled", "/sys/*/*/uevent")},
	"write-cgroup":        {try: openProbe(os.O_WRONLY, "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs")},
	"make-cgroup":         {try: makeBelow("/sys/fs/cgroup")},
	"read-kernel-symbols": {try: readSymbols, lacks: noSuchFile, off: setting{"/proc/sys/kernel/kptr_restrict", "2"}},
	"make-block-device":   {try: makeDevice(unix.S_IFBLK, 254, 0)},
	"make-memory-device":  {try: makeDevice(unix.S_IFCHR, 1, 1)},
	"open-by-handle":      {try: openByHandle, lacks: []syscall.Errno{unix.EOPNOTSUPP}},
	"read-handle-of-a-name": {try: func() error {
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
		return err
	}, lacks: []syscall.Errno{unix.EOPNOTSUPP}},
}

// makeBelow returns an attempt to create a control group below dir and to remove it.
func makeBelow(dir string) func() error {
	return func() error {
		parent := dir
		if groups := glob(filepath.Join(dir, "*", "cgroup.procs")); len(groups) > 0 {
			parent = filepath.Dir(groups[0])
		}
		name := filepath.Join(parent, fmt.Sprintf("crannog-probe-%d", os.Getpid()))
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
		return os.Remove(name)
	}
}

// makeDevice returns an attempt to create a device node, which is not opened, and to remove it.
func makeDevice(kind, major, minor uint32) func() error {
	return func() error {
		name := fmt.Sprintf("/tmp/crannog-device-%d", os.Getpid())
		if err := unix.Mknod(name, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
			return err
		}
		return os.Remove(name)
	}
}

// readSymbols reads the address of a kernel symbol.
func readSymbols() error {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if address, _, _ := bytes.Cut(lines.Bytes(), []byte(" ")); strings.Trim(string(address), "0") != "" {
			return nil
		}
	}
	return unix.EACCES // all addresses are zero
}

// openByHandle opens the root directory by its file handle, which bypasses all paths. If the handle
// cannot be read, it guesses the inode number: the root of a disk often has the number 2.
func openByHandle() error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
	if err != nil {
		number := [2]uint32{2, 0}
		handle = unix.NewFileHandle(1, unsafe.Slice((*byte)(unsafe.Pointer(&number)), 8))
	}
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return descriptor(func() (int, error) { return unix.OpenByHandleAt(root, handle, unix.O_RDONLY) })()
}
