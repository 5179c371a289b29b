// Command module makes escape attempts from inside WebAssembly: module NAME SECRET. SECRET is the
// path of a file of the host. It prints "escaped" and a reason, or "blocked" and the error. With the
// variable INSIDE, paths lead to files with the same names in the working directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 path_open
func pathOpen(fd int32, dirFlags uint32, path *byte, size uint32, openFlags uint32, rights, inheriting uint64, fdFlags uint32, opened *int32) uint32

//go:wasmimport wasi_snapshot_preview1 path_symlink
func pathSymlink(target *byte, targetSize uint32, fd int32, path *byte, size uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_link
func pathLink(from int32, flags uint32, path *byte, size uint32, to int32, newPath *byte, newSize uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_rename
func pathRename(from int32, path *byte, size uint32, to int32, newPath *byte, newSize uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_read
func fdRead(fd int32, parts unsafe.Pointer, count uint32, read *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_get
func fdStat(fd int32, to unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 fd_prestat_get
func fdPrestat(fd int32, to unsafe.Pointer) uint32

const (
	follow    = 1 // a lookup flag
	create    = 1 // an open flag
	rightRead = 1 << 1
	rightAll  = 1<<29 - 1
	maxFD     = 256

	looping = "looping" // is printed before the endless loop
)

func main() {
	secret = os.Args[2]
	try, ok := attempts[os.Args[1]]
	if !ok {
		fmt.Println("unknown attempt", os.Args[1])
		os.Exit(2)
	}
	if reason := try(); reason != "" {
		fmt.Println("escaped", reason)
		return
	}
	fmt.Println("blocked", last)
}

var (
	secret string
	last   any // the last error
)

// attempts return what they reached, or "".
var attempts = map[string]func() string{
	"parent-of-directory":        func() string { return openAny(up(secret)) },
	"parent-after-directory":     func() string { return openAny("d/../" + up(secret)) },
	"absolute-path":              func() string { return openAny(absolute(secret)) },
	"absolute-path-many-slashes": func() string { return openAny(absolute("///" + secret)) },
	"path-with-zero":             func() string { return openAny(zero(up(secret))) },
	"create-outside":             createOutside,
	"rename-outside":             renameOutside,
	"own-link-to-parent":         func() string { return ownLink(up(secret)) },
	"own-link-to-link":           func() string { return ownLink("hostlink") },
	"link-of-host":               func() string { return openAny("hostlink") },
	"directory-link-of-host":     func() string { return openAny("hostdir/secret") },
	"hard-link-to-link":          hardLink,
	"own-memory":                 func() string { return readPath("/proc/self/mem", "") },
	"own-memory-by-parent":       func() string { return openRaw(up("/proc/self/maps"), "") },
	"first-process":              func() string { return readPath("/proc/1/cmdline", "") },
	"kernel-settings":            func() string { return readPath("/sys/kernel/uevent_seqnum", "") },
	"guest-program":              func() string { return readPath("/.crannog/crannog-guest", "") },
	"unknown-descriptors":        unknownDescriptors,
	"much-memory":                muchMemory,
	"many-files":                 manyFiles,
	"large-file":                 largeFile,
	"endless-loop":               endlessLoop,
}

// up returns a path that leads to an absolute one through parent directories.
func up(path string) string {
	if inside {
		return "d/../" + filepath.Base(path)
	}
	return strings.Repeat("../", 12) + strings.TrimPrefix(path, "/")
}

func absolute(path string) string {
	if inside {
		return filepath.Base(path)
	}
	return path
}

// zero puts an allowed name and a zero byte before a path.
func zero(path string) string {
	if inside {
		return path
	}
	return "text\x00/../" + path
}

var inside = os.Getenv("INSIDE") != ""

// openAny opens a path below each open directory and returns its content if it is the secret.
func openAny(path string) string { return openRaw(path, "escape-secret") }

func openRaw(path, want string) string {
	for fd := int32(3); fd < maxFD; fd++ {
		if text := openAt(fd, path, want); text != "" {
			return text
		}
	}
	return ""
}

func openAt(fd int32, path, want string) string {
	var opened int32
	bytes := []byte(path)
	if errno := pathOpen(fd, follow, &bytes[0], uint32(len(bytes)), 0, rightRead, 0, 0, &opened); errno != 0 {
		if errno != 8 { // not a descriptor
			last = errno
		}
		return ""
	}
	data := make([]byte, 64)
	part := [2]uint32{uint32(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))}
	var n uint32
	if errno := fdRead(opened, unsafe.Pointer(&part), 1, &n); errno != 0 {
		last = errno
		return ""
	}
	if text := string(data[:n]); text != "" && strings.Contains(text, want) {
		return fmt.Sprintf("%d %s: %q", fd, path, text)
	}
	return ""
}

func readPath(path, want string) string {
	f, err := os.Open(path)
	if err != nil {
		last = err
		return ""
	}
	defer f.Close()
	data := make([]byte, 64)
	n, err := f.Read(data)
	// The own memory can be opened, and has nothing at its beginning.
	if last = err; n == 0 && path != "/proc/self/mem" {
		return ""
	}
	return fmt.Sprintf("%s: %q", path, data[:n])
}

func createOutside() string {
	path := []byte(up(filepath.Dir(secret) + "/created"))
	for fd := int32(3); fd < maxFD; fd++ {
		var opened int32
		errno := pathOpen(fd, follow, &path[0], uint32(len(path)), create, rightAll, 0, 0, &opened)
		if errno == 0 {
			return string(path)
		}
		if errno != 8 {
			last = errno
		}
	}
	return ""
}

func renameOutside() string {
	if err := os.WriteFile("moved", []byte("x"), 0o644); err != nil {
		last = err
		return ""
	}
	from, to := []byte("moved"), []byte(up(filepath.Dir(secret)+"/moved"))
	for fd := int32(3); fd < maxFD; fd++ {
		errno := pathRename(fd, &from[0], uint32(len(from)), fd, &to[0], uint32(len(to)))
		if errno == 0 {
			return string(to)
		}
		if errno != 8 {
			last = errno
		}
	}
	return ""
}

func ownLink(target string) string {
	bytes, name := []byte(target), []byte("own"+fmt.Sprint(len(target)))
	for fd := int32(3); fd < maxFD; fd++ {
		if errno := pathSymlink(&bytes[0], uint32(len(bytes)), fd, &name[0], uint32(len(name))); errno != 0 {
			if errno != 8 {
				last = errno
			}
			continue
		}
		if text := openAt(fd, string(name), "escape-secret"); text != "" {
			return text
		}
	}
	return ""
}

func hardLink() string {
	from, to := []byte("hostlink"), []byte("hard")
	for fd := int32(3); fd < maxFD; fd++ {
		if errno := pathLink(fd, follow, &from[0], uint32(len(from)), fd, &to[0], uint32(len(to))); errno != 0 && errno != 8 {
			last = errno
		}
		if text := openAt(fd, "hard", "escape-secret"); text != "" {
			return text
		}
	}
	return ""
}

// unknownDescriptors looks for open files that are neither streams nor the module's directories.
func unknownDescriptors() string {
	if os.Getenv("CONTROL") != "" { // a file that the control has open besides
		f, err := os.Open("/workspace/text")
		if err != nil {
			last = err
			return ""
		}
		defer f.Close()
	}
	stat := make([]byte, 64)
	for fd := int32(3); fd < maxFD; fd++ {
		if fdStat(fd, unsafe.Pointer(&stat[0])) == 0 && fdPrestat(fd, unsafe.Pointer(&stat[0])) != 0 {
			return fmt.Sprint("descriptor ", fd)
		}
	}
	return ""
}

func muchMemory() string {
	var all [][]byte
	for range 300 {
		all = append(all, make([]byte, 1<<20))
		for i := range all[len(all)-1] {
			all[len(all)-1][i] = 1
		}
	}
	return fmt.Sprint(len(all), " MiB")
}

func manyFiles() string {
	for i := range 5000 {
		f, err := os.Create(fmt.Sprintf("/tmp/many-%d", i))
		if err != nil {
			last = err
			return ""
		}
		f.Close()
	}
	return "5000 files"
}

func largeFile() string {
	f, err := os.Create("/tmp/large")
	if err != nil {
		last = err
		return ""
	}
	defer os.Remove("/tmp/large")
	defer f.Close()
	for range 160 {
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			last = err
			return ""
		}
	}
	return "160 MiB"
}

func endlessLoop() string {
	fmt.Println(looping)
	for {
	}
}
