package confine

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data. The supported machines are little-endian, so an argument's low
// half comes first.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

// The actions of a filter.
const (
	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
	// refuse returns the error of a caller without the right.
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// unknown returns the error of a kernel without the call, so that the runtime falls back if it
	// tries a newer call first.
	unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// filterCalls allows only the system calls that Go's runtime, its network code and open files need.
// It is a list of allowed calls, so a call of a later kernel fails as well.
func filterCalls(report *Report) error {
	program, err := assemble(unix.Getpid())
	if err != nil {
		return err
	}
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
	report.Seccomp = true
	return nil
}

// assemble returns the filter program for the process with this ID.
func assemble(pid int) ([]unix.SockFilter, error) {
	code := []bpf.Instruction{
		// Another architecture's numbers mean other calls.
		bpf.LoadAbsolute{Off: offsetArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		// So do those of x32.
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
	}
	for _, number := range append(plainCalls, machineCalls...) {
		code = append(code,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1},
			bpf.RetConstant{Val: allow})
	}
	for _, c := range checkedCalls(pid) {
		body := c.body()
		if len(body) > math.MaxUint8 {
			return nil, fmt.Errorf("the check of call %d is too long", c.number)
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: uint8(len(body))})
		code = append(code, body...)
	}
	code = append(code, bpf.RetConstant{Val: unknown})
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, err
	}
	if len(raw) > 4096 {
		return nil, errors.New("the program is longer than the kernel accepts")
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}

// check is one system call with its allowed arguments: any of the alternatives must hold, each of
// which is a list of conditions that must all hold.
type check struct {
	number uint32
	any    [][]condition
}

// condition holds if the argument's low half under the mask is one of values.
// The kernel reads each of these arguments as 32 bits.
type condition struct {
	argument int
	mask     uint32
	values   []uint32
}

const whole = math.MaxUint32

// body ends every path with an action.
func (c check) body() []bpf.Instruction {
	var out []bpf.Instruction
	for _, all := range c.any {
		// From the last to the first, because a condition that fails jumps over what follows it.
		alternative := []bpf.Instruction{bpf.RetConstant{Val: allow}}
		for _, one := range slices.Backward(all) {
			alternative = append(one.code(len(alternative)), alternative...)
		}
		out = append(out, alternative...)
	}
	return append(out, bpf.RetConstant{Val: refuse})
}

// code continues if the condition holds, and otherwise skips the next instructions.
func (c condition) code(skip int) []bpf.Instruction {
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArguments + 8*uint32(c.argument), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask},
	}
	for i, value := range c.values {
		left := uint8(len(c.values) - 1 - i) // comparisons that follow
		jump := bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: left}
		if left == 0 {
			jump.SkipFalse = uint8(skip)
		}
		out = append(out, jump)
	}
	return out
}
