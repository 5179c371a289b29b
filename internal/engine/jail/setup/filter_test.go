package setup

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/seccomp"
	"github.com/crannog/crannog/internal/host/seccomp/seccomptest"
)

var update = flag.Bool("update", false, "write the golden files")

// Reviewers see the list of permitted calls as text.
func TestFilterListMatchesGoldenFile(t *testing.T) {
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
		return // the list is for another architecture
	}
	if err != nil || got != string(want) {
		t.Errorf("the calls are not those of %s; review the difference and run with -update (%v)", golden, err)
	}
}

// The assembled program decides as the lists require.
func TestFilterDecidesAsListed(t *testing.T) {
	program, err := assemble()
	if err != nil {
		t.Fatal(err)
	}
	answer := seccomptest.New(t, program).Answer
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
		if got := answer(c.number, seccomp.Architecture); got != seccomp.Unknown {
			t.Errorf("%s: the filter returns %#x, want %#x", c.name, got, seccomp.Unknown)
		}
	}
	for n := range uint32(600) {
		want := seccomp.Refuse
		switch {
		case others[n]:
			continue
		case plain[n]:
			want = seccomp.Allow
		case n > lastReviewed:
			want = seccomp.Unknown
		}
		if got := answer(n, seccomp.Architecture); got != want {
			t.Errorf("call %d: %#x, want %#x", n, got, want)
		}
	}
	for name, c := range map[string]struct{ got, want uint32 }{
		"another architecture":   {answer(0, seccomp.Architecture+1), seccomp.Kill},
		"another interface":      {answer(seccomp.Foreign, seccomp.Architecture), seccomp.Kill},
		"a thread":               {answer(unix.SYS_CLONE, seccomp.Architecture, unix.CLONE_VM|unix.CLONE_THREAD), seccomp.Allow},
		"a user namespace":       {answer(unix.SYS_CLONE, seccomp.Architecture, unix.CLONE_NEWUSER), seccomp.Refuse},
		"own current directory":  {answer(unix.SYS_UNSHARE, seccomp.Architecture, unix.CLONE_FS), seccomp.Allow},
		"a mount namespace":      {answer(unix.SYS_UNSHARE, seccomp.Architecture, unix.CLONE_NEWNS|unix.CLONE_FS), seccomp.Refuse},
		"the size of a terminal": {answer(unix.SYS_IOCTL, seccomp.Architecture, 0, unix.TIOCGWINSZ), seccomp.Allow},
		"typing into a terminal": {answer(unix.SYS_IOCTL, seccomp.Architecture, 0, unix.TIOCSTI), seccomp.Refuse},
		"a console":              {answer(unix.SYS_IOCTL, seccomp.Architecture, 0, unix.TIOCLINUX), seccomp.Refuse},
		"TCP":                    {answer(unix.SYS_SOCKET, seccomp.Architecture, unix.AF_INET), seccomp.Allow},
		"Unix":                   {answer(unix.SYS_SOCKET, seccomp.Architecture, unix.AF_UNIX), seccomp.Allow},
		"packets":                {answer(unix.SYS_SOCKET, seccomp.Architecture, unix.AF_PACKET), seccomp.Refuse},
		"routes":                 {answer(unix.SYS_SOCKET, seccomp.Architecture, unix.AF_NETLINK, 0, unix.NETLINK_ROUTE), seccomp.Allow},
		"netfilter":              {answer(unix.SYS_SOCKET, seccomp.Architecture, unix.AF_NETLINK, 0, unix.NETLINK_NETFILTER), seccomp.Refuse},
		"query of personality":   {answer(unix.SYS_PERSONALITY, seccomp.Architecture, 0xffffffff), seccomp.Allow},
		"executable memory":      {answer(unix.SYS_PERSONALITY, seccomp.Architecture, 0x0400000), seccomp.Refuse},
	} {
		if c.got != c.want {
			t.Errorf("%s: the filter returns %#x, want %#x", name, c.got, c.want)
		}
	}
}
