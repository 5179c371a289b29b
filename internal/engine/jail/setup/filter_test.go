package setup

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files")

// The list of permitted calls is reviewed as text.
func TestCallsAreTheReviewedOnes(t *testing.T) {
	var lines []string
	for _, c := range slices.Concat(plainCalls, machineCalls) {
		lines = append(lines, c.name+" any")
	}
	for _, c := range checkedCalls {
		lines = append(lines, fmt.Sprintf("%s argument %d &%#x in %v deny=%v", c.name, c.argument, c.mask, c.values, c.deny))
	}
	for _, c := range missingCalls {
		lines = append(lines, c.name+" does not exist")
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	golden := filepath.Join("testdata", "calls_"+runtime.GOARCH+".golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if os.IsNotExist(err) && runtime.GOARCH != "amd64" {
		return // it was reviewed for that machine
	}
	if err != nil || got != string(want) {
		t.Errorf("the calls are not those of %s; review the difference and run with -update (%v)", golden, err)
	}
}

// The assembled program answers as the list says.
func TestFilterAnswersByTheList(t *testing.T) {
	program, err := assemble()
	if err != nil {
		t.Fatal(err)
	}
	var code []bpf.Instruction
	for _, f := range program {
		code = append(code, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(number, arch uint32, arguments ...uint32) uint32 {
		// The virtual machine reads as from a network.
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[offsetNumber:], number)
		binary.BigEndian.PutUint32(data[offsetArchitecture:], arch)
		for i, a := range arguments {
			binary.BigEndian.PutUint32(data[offsetArguments+8*i:], a)
		}
		n, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	plain := map[uint32]bool{}
	for _, c := range slices.Concat(plainCalls, machineCalls) {
		plain[c.number] = true
	}
	others := map[uint32]bool{}
	for _, c := range checkedCalls {
		others[c.number] = true
	}
	for _, c := range missingCalls {
		others[c.number] = true
		if got := answer(c.number, architecture); got != unknown {
			t.Errorf("%s: %#x", c.name, got)
		}
	}
	for n := range uint32(600) {
		want := refuse
		switch {
		case others[n]:
			continue
		case plain[n]:
			want = allow
		case n > lastKnown:
			want = unknown
		}
		if got := answer(n, architecture); got != want {
			t.Errorf("call %d: %#x, want %#x", n, got, want)
		}
	}
	for what, c := range map[string]struct{ got, want uint32 }{
		"another machine":        {answer(0, architecture+1), kill},
		"another interface":      {answer(foreign, architecture), kill},
		"a thread":               {answer(unix.SYS_CLONE, architecture, unix.CLONE_VM|unix.CLONE_THREAD), allow},
		"a user namespace":       {answer(unix.SYS_CLONE, architecture, unix.CLONE_NEWUSER), refuse},
		"parting with files":     {answer(unix.SYS_UNSHARE, architecture, unix.CLONE_FS), allow},
		"a mount namespace":      {answer(unix.SYS_UNSHARE, architecture, unix.CLONE_NEWNS|unix.CLONE_FS), refuse},
		"the size of a terminal": {answer(unix.SYS_IOCTL, architecture, 0, unix.TIOCGWINSZ), allow},
		"typing into a terminal": {answer(unix.SYS_IOCTL, architecture, 0, unix.TIOCSTI), refuse},
		"a console":              {answer(unix.SYS_IOCTL, architecture, 0, unix.TIOCLINUX), refuse},
		"TCP":                    {answer(unix.SYS_SOCKET, architecture, unix.AF_INET), allow},
		"Unix":                   {answer(unix.SYS_SOCKET, architecture, unix.AF_UNIX), allow},
		"packets":                {answer(unix.SYS_SOCKET, architecture, unix.AF_PACKET), refuse},
		"routes":                 {answer(unix.SYS_SOCKET, architecture, unix.AF_NETLINK, 0, unix.NETLINK_ROUTE), allow},
		"netfilter":              {answer(unix.SYS_SOCKET, architecture, unix.AF_NETLINK, 0, unix.NETLINK_NETFILTER), refuse},
		"asking for personality": {answer(unix.SYS_PERSONALITY, architecture, 0xffffffff), allow},
		"memory that executes":   {answer(unix.SYS_PERSONALITY, architecture, 0x0400000), refuse},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", what, c.got, c.want)
		}
	}
}
