// Package seccomp owns assembling and installing system call filters: the input and the results of
// the BPF program. Callers decide which calls a filter allows.
package seccomp

import (
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

// OffsetArgument returns the offset of the low half of an argument.
func OffsetArgument(n int) uint32 { return offsetArguments + 8*uint32(n) }

// Results of a filter.
const (
	Allow = unix.SECCOMP_RET_ALLOW
	// Kill kills a process that uses another architecture's system calls. No program does so by
	// mistake, and such a call could bypass a list of allowed numbers.
	Kill = unix.SECCOMP_RET_KILL_PROCESS
	// Refuse returns the error for a caller without permission.
	Refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// Unknown returns the error of a kernel without the call, so that libraries and the Go runtime
	// fall back to an older call.
	Unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// maxInstructions is the maximum length of a filter that the kernel accepts.
const maxInstructions = 4096

// Assemble returns a filter that kills a process which uses another architecture's system calls,
// and otherwise continues with code. The call's number is loaded when code begins. Code must return
// a result on every path.
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
	if len(raw) > maxInstructions {
		return nil, fmt.Errorf("the filter has %d instructions, and the kernel accepts %d", len(raw), maxInstructions)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}

// Install applies a filter to all threads of this process and everything that they start.
func Install(program []unix.SockFilter) error {
	header := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// TSYNC applies the filter to every thread, or to none.
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
