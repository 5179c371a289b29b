package gvisor

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestEarlyComesFirst checks that packages first and early are initialised before large packages.
// If they imported one, they would run only after the work that they avoid.
func TestEarlyComesFirst(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the process that lists initialised packages failed: %v: %s", err, out)
	}
	var order []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "init" {
			order = append(order, fields[1])
		}
	}
	first := slices.Index(order, "github.com/crannog/crannog/internal/engine/gvisor/first")
	for _, late := range []string{"syscall", "os", "encoding/json"} {
		if at := slices.Index(order, late); first < 0 || at < first {
			t.Errorf("%s is number %d to be initialised, first %d", late, at, first)
		}
	}
	early := slices.Index(order, "github.com/crannog/crannog/internal/engine/gvisor/early")
	for _, late := range []string{"gvisor.dev/gvisor/pkg/sentry/kernel", "gvisor.dev/gvisor/pkg/sentry/syscalls/linux", "gvisor.dev/gvisor/pkg/sentry/socket/netstack"} {
		if at := slices.Index(order, late); early < 0 || at < early {
			t.Errorf("%s is number %d to be initialised, early %d", late, at, early)
		}
	}
}
