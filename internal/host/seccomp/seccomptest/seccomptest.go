// Package seccomptest owns running system call filters in the BPF interpreter of golang.org/x/net,
// so that tests can check their results without installing them.
package seccomptest

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
)

// Filter is an assembled filter.
type Filter struct {
	t  testing.TB
	vm *bpf.VM
}

// New returns the filter of a program.
func New(t testing.TB, program []unix.SockFilter) Filter {
	t.Helper()
	var code []bpf.Instruction
	for _, f := range program {
		code = append(code, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	return Filter{t, vm}
}

// Answer returns the filter's result for a call whose arguments have these low halves.
func (f Filter) Answer(number, architecture uint32, arguments ...uint32) uint32 {
	f.t.Helper()
	// The interpreter reads big-endian numbers, as in network packets.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[seccomp.OffsetNumber:], number)
	binary.BigEndian.PutUint32(data[seccomp.OffsetArchitecture:], architecture)
	for i, a := range arguments {
		binary.BigEndian.PutUint32(data[seccomp.OffsetArgument(i):], a)
	}
	n, err := f.vm.Run(data)
	if err != nil {
		f.t.Fatal(err)
	}
	return uint32(n)
}
