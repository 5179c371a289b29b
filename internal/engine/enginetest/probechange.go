package enginetest

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// change is an attempt to change a file. The argument writable is set in a control, which has write
// permission where a correct kernel requires it.
type change struct {
	name string
	try  func(path string, writable bool) error
}

// overwritten is the text that attempts write.
const overwritten = "written by a probe"

// fileChanges lists attempts to change a file, in the order in which they are tried.
var fileChanges = []change{
	{"write", withFile(os.O_WRONLY, func(f *os.File) error { _, err := f.WriteString(overwritten); return err })},
	{"append", withFile(os.O_WRONLY|os.O_APPEND, func(f *os.File) error { _, err := f.WriteString(overwritten); return err })},
	{"map", withFile(os.O_RDWR, func(f *os.File) error { return writeMapped(f, unix.MAP_SHARED) })},
	{"hole", withFile(os.O_RDWR, func(f *os.File) error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4)
	})},
	{"copy-range", withFile(os.O_RDWR, func(f *os.File) error {
		from, to := int64(4), int64(0)
		_, err := unix.CopyFileRange(int(f.Fd()), &from, int(f.Fd()), &to, 4, 0)
		return err
	})},
	{"send", withFile(os.O_RDWR, func(f *os.File) error {
		from, err := os.Open("/proc/self/exe")
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = unix.Sendfile(int(f.Fd()), int(from.Fd()), nil, 4)
		return err
	})},
	{"mode", onPath(func(path string) error { return os.Chmod(path, 0o7777) })},
	{"owner", onPath(func(path string) error { return os.Chown(path, 4242, 4242) })},
	{"times", onPath(func(path string) error { return os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) })},
	{"attribute", onPath(func(path string) error { return unix.Setxattr(path, "user.probe", []byte("x"), 0) })},
	{"through-descriptor", withReadable(func(f *os.File) error {
		return appendTo("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	})},
	{"through-init", onPath(func(path string) error { return appendTo(initFile("root") + path) })},
	{"through-link", onPath(func(path string) error {
		return withNewName(path, func(name string) error { return errors.Join(os.Symlink(path, name), appendTo(name)) })
	})},
	{"through-hard-link", onPath(func(path string) error {
		return withNewName(path, func(name string) error { return errors.Join(os.Link(path, name), appendTo(name)) })
	})},
	{"splice", withReadable(func(f *os.File) error { return throughPipe(f, false) })},
	{"vmsplice", withReadable(func(f *os.File) error { return throughPipe(f, true) })},
	{"map-privately", withReadable(func(f *os.File) error { return writeMapped(f, unix.MAP_PRIVATE) })},
	// Mapping and splicing need a file with content, so they come after the others.
	{"truncate", withFile(os.O_WRONLY|os.O_TRUNC, func(*os.File) error { return nil })},
	{"sibling", onPath(func(path string) error { return os.WriteFile(path+".probe", []byte(overwritten), 0o666) })},
	{"move", onPath(func(path string) error { return os.Rename(path, path+".moved") })},
	{"replace", onPath(func(path string) error {
		return errors.Join(os.WriteFile(path+".new", []byte(overwritten), 0o666), os.Rename(path+".new", path))
	})},
	{"remove", onPath(os.Remove)},
	{"move-directory", onPath(func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".moved") })},
}

// onPath returns an attempt that does not depend on write permission of a descriptor.
func onPath(try func(path string) error) func(string, bool) error {
	return func(path string, _ bool) error { return try(path) }
}

// withFile returns an attempt on a file that is opened with the given flags.
func withFile(flags int, try func(f *os.File) error) func(string, bool) error {
	return onPath(func(path string) error {
		f, err := os.OpenFile(path, flags, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return try(f)
	})
}

// withReadable returns an attempt on a file that is open for reading only, or in a control also for
// writing.
func withReadable(try func(f *os.File) error) func(string, bool) error {
	return func(path string, writable bool) error {
		if writable {
			return withFile(os.O_RDWR, try)(path, false)
		}
		return withFile(os.O_RDONLY, try)(path, false)
	}
}

// appendTo appends to a file.
func appendTo(path string) error {
	return withFile(os.O_WRONLY|os.O_APPEND, func(f *os.File) error { _, err := f.WriteString(overwritten); return err })(path, false)
}

// writeMapped writes to a mapping of the file. In a control, where the file was opened for writing,
// the mapping is shared.
func writeMapped(f *os.File, flags int) error {
	mode, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if mode&unix.O_ACCMODE == unix.O_RDWR {
		flags = unix.MAP_SHARED
	}
	data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return err
	}
	copy(data, overwritten)
	return errors.Join(unix.Madvise(data, unix.MADV_DONTNEED), unix.Munmap(data))
}

// throughPipe splices the file's own pages into a pipe, writes more data to the pipe, and splices
// the content of the pipe back into the file.
func throughPipe(f *os.File, fromMemory bool) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	from, to := int64(0), int64(0)
	if _, err := unix.Splice(int(f.Fd()), &from, pipe[1], nil, 1, 0); err != nil {
		return err
	}
	data := []byte(overwritten)
	if fromMemory {
		piece := []unix.Iovec{{Base: &data[0]}}
		piece[0].SetLen(len(data))
		if _, err := unix.Vmsplice(pipe[1], piece, 0); err != nil {
			return err
		}
	} else if _, err := unix.Write(pipe[1], data); err != nil {
		return err
	}
	_, err := unix.Splice(pipe[0], nil, int(f.Fd()), &to, 1+len(data), 0)
	return err
}

// settings maps kernel settings to new values. The values are harmless, because an attempt that
// succeeds must not break the machine.
var settings = map[string]string{
	"/proc/sys/net/ipv4/tcp_sack":            "0",
	"/proc/sys/net/ipv4/tcp_recovery":        "0",
	"/proc/sys/net/ipv4/ip_local_port_range": "33333 60333",
	"/proc/sys/fs/mount-max":                 "99999",
	"/proc/sys/kernel/domainname":            "probe",
	"/proc/sys/kernel/hostname":              "probe",
	"/proc/sys/vm/stat_interval":             "2",
}

// trySettings tries to change each setting and returns the results.
func trySettings() (list []answer) {
	for _, path := range slices.Sorted(maps.Keys(settings)) {
		err := os.WriteFile(path, []byte(settings[path]), 0)
		if now, _ := os.ReadFile(path); err == nil && strings.Join(strings.Fields(string(now)), " ") != settings[path] {
			err = errors.New("the setting does not have the written value")
		}
		list = append(list, newAnswer("set", path, err))
	}
	return list
}
