package confine

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
)

// filterCalls allows only the system calls that Go's runtime, its network code and open files need.
// New system calls of later kernels are thus forbidden too.
func filterCalls(report *Report) error {
	program, err := assemble(unix.Getpid())
	if err != nil {
		return err
	}
	if err := seccomp.Install(program); err != nil {
		return err
	}
	report.Seccomp = true
	return nil
}

// assemble returns the filter program for the process with this ID.
func assemble(pid int) ([]unix.SockFilter, error) {
	var code []bpf.Instruction
	for _, number := range append(plainCalls, machineCalls...) {
		code = append(code,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1},
			bpf.RetConstant{Val: seccomp.Allow})
	}
	for _, c := range checkedCalls(pid) {
		body := c.body()
		if len(body) > math.MaxUint8 {
			return nil, fmt.Errorf("the check of call %d is too long", c.number)
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.number, SkipTrue: uint8(len(body))})
		code = append(code, body...)
	}
	code = append(code, bpf.RetConstant{Val: seccomp.Unknown})
	return seccomp.Assemble(code)
}

// check is a system call with its allowed arguments: a list of alternatives, of which one must
// hold. An alternative is a list of conditions that must all hold.
type check struct {
	number uint32
	any    [][]condition
}

// condition holds if the argument's low half under the mask is one of values. The kernel reads each
// of these arguments as 32 bits.
type condition struct {
	argument int
	mask     uint32
	values   []uint32
}

const allBits = math.MaxUint32

// body ends every path with an action.
func (c check) body() []bpf.Instruction {
	var out []bpf.Instruction
	for _, all := range c.any {
		// From last to first, because a condition that fails jumps over the code that follows it.
		alternative := []bpf.Instruction{bpf.RetConstant{Val: seccomp.Allow}}
		for _, one := range slices.Backward(all) {
			alternative = append(one.code(len(alternative)), alternative...)
		}
		out = append(out, alternative...)
	}
	return append(out, bpf.RetConstant{Val: seccomp.Refuse})
}

// code continues if the condition holds, and otherwise skips the next instructions.
func (c condition) code(skip int) []bpf.Instruction {
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: seccomp.OffsetArgument(c.argument), Size: 4},
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
