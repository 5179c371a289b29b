package prefault

import "unsafe"

// call makes a system call that does not block. Package syscall makes them too,
// but a package that imports it is initialised after most of the standard
// library.
//
//go:noescape
func call(number, a, b, c uintptr) (result uintptr)

func address(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) }

// failed reports whether a system call returned an error.
func failed(result uintptr) bool { return result > ^uintptr(4095) }

// read fills buf from the beginning of a file and returns how much it has read,
// which is 0 after an error. The path ends with a zero byte.
func read(path string, buf []byte) (n int) {
	fd := open(unsafe.StringData(path))
	if failed(fd) {
		return 0
	}
	for n < len(buf) {
		got := call(sysRead, fd, address(&buf[n]), uintptr(len(buf)-n))
		if failed(got) || got == 0 {
			break
		}
		n += int(got)
	}
	call(sysClose, fd, 0, 0)
	return n
}
