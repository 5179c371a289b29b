package prefault

import "unsafe"

// call makes a system call that does not block. It replaces package syscall, because a package that
// imports that one is initialised after most of the standard library.
//
//go:noescape
func call(number, a, b, c uintptr) (result uintptr)

// dataStart and dataEnd return the bounds of the variables that have an initial value or hold
// pointers. Large tables without pointers lie behind them.
func dataStart() uintptr
func dataEnd() uintptr

func address(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) }

// failed reports whether a system call returned an error.
func failed(result uintptr) bool { return result > ^uintptr(4095) }

// read fills buf from the beginning of a file and returns how many bytes it has read, which is 0
// after an error. The path ends with a zero byte.
func read(path string, buf []byte) (n int) {
	fd := open(unsafe.StringData(path))
	if failed(fd) {
		return 0
	}
	for n < len(buf) {
		count := call(sysRead, fd, address(&buf[n]), uintptr(len(buf)-n))
		if failed(count) || count == 0 {
			break
		}
		n += int(count)
	}
	call(sysClose, fd, 0, 0)
	return n
}

// ReadByte waits for a byte from a descriptor and reports whether it got one.
func ReadByte(fd int) bool {
	const interrupted = ^uintptr(4) + 1 // -EINTR
	var one [1]byte
	got := interrupted
	for got == interrupted {
		got = call(sysRead, uintptr(fd), address(&one[0]), 1)
	}
	return got == 1
}

// Unmount detaches the mount at a path and reports whether it succeeded.
func Unmount(path string) bool {
	const detach = 2
	path += "\x00"
	return !failed(call(sysUmount, address(unsafe.StringData(path)), detach, 0))
}

// Exit ends this process.
func Exit(code int) {
	for {
		call(sysExitGroup, uintptr(code), 0, 0)
	}
}
