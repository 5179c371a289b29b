package seccomp_test

import (
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
	"github.com/crannog/crannog/internal/host/seccomp/seccomptest"
)

// The same number is another call on another architecture. A process could use one to bypass a list
// of allowed numbers, so none of them may pass.
func TestCallsOfOtherArchitecturesAreKilled(t *testing.T) {
	program, err := seccomp.Assemble([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_READ, SkipTrue: 1},
		bpf.RetConstant{Val: seccomp.Unknown},
		bpf.LoadAbsolute{Off: seccomp.OffsetArgument(1), Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 7, SkipTrue: 1},
		bpf.RetConstant{Val: seccomp.Refuse},
		bpf.RetConstant{Val: seccomp.Allow},
	})
	if err != nil {
		t.Fatal(err)
	}
	filter := seccomptest.New(t, program)
	for name, c := range map[string]struct{ architecture, number, argument, want uint32 }{
		"allowed":              {seccomp.Architecture, unix.SYS_READ, 7, seccomp.Allow},
		"another argument":     {seccomp.Architecture, unix.SYS_READ, 8, seccomp.Refuse},
		"another call":         {seccomp.Architecture, unix.SYS_READ + 1, 7, seccomp.Unknown},
		"another architecture": {seccomp.Architecture + 1, unix.SYS_READ, 7, seccomp.Kill},
		"another interface":    {seccomp.Architecture, seccomp.Foreign + unix.SYS_READ, 7, seccomp.Kill},
	} {
		if got := filter.Answer(c.number, c.architecture, 0, c.argument); got != c.want {
			t.Errorf("result of %s: got %#x, want %#x", name, got, c.want)
		}
	}
}

func TestAssembleRejectsLongFilter(t *testing.T) {
	if _, err := seccomp.Assemble(slices.Repeat([]bpf.Instruction{bpf.RetConstant{Val: seccomp.Allow}}, 4096)); err == nil {
		t.Error("a program above the kernel's limit was assembled")
	}
}
