// Package seccomp owns the form of system call filters: what a program of BPF reads and answers, and
// how it comes into force. Which calls a filter allows is up to its caller.
package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data. The supported machines are little-endian, so an argument's low
// half comes first.
const (
	OffsetNumber       = 0
	OffsetArchitecture = 4
	offsetArguments    = 16
)

// OffsetArgument is where the low half of an argument is.
func OffsetArgument(n int) uint32 { return offsetArguments + 8*uint32(n) }

// Answers of a filter.
const (
	Allow = unix.SECCOMP_RET_ALLOW
	// Kill ends a process that uses another machine's numbers. No program does so by mistake, and a
	// list of numbers means nothing for them.
	Kill = unix.SECCOMP_RET_KILL_PROCESS
	// Refuse returns the error of a caller without the right.
	Refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// Unknown returns the error of a kernel without the call, so that libraries and Go's runtime
	// fall back if they try a newer call first.
	Unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// longest is the number of instructions that the kernel accepts.
const longest = 4096

// Assemble returns the program that ends a process which calls by another machine's numbers, and
// otherwise continues with the code, to which the call's number is loaded. The code has to answer on
// every path.
func Assemble(code []bpf.Instruction) ([]unix.SockFilter, error) {
	raw, err := bpf.Assemble(append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: OffsetArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: Architecture, SkipTrue: 1},
		bpf.RetConstant{Val: Kill},
		bpf.LoadAbsolute{Off: OffsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: Foreign, SkipTrue: 1},
		bpf.RetConstant{Val: Kill},
	}, code...))
	if err != nil {
		return nil, err
	}
	if len(raw) > longest {
		return nil, errors.New("the filter is longer than the kernel accepts")
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}

// Install puts all threads of this process, and all that they start, under a filter.
func Install(program []unix.SockFilter) error {
	header := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// TSYNC puts every thread under the filter, or none.
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&header)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has another filter", thread)
	}
	return nil
}
