package enginetest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// sharedRules check that attacks fail on engines whose sandboxes share the host's kernel.
var sharedRules = []rule{
	{"shared-kernel/attacks-fail", attacksFail},
}

// attacks is a program that tries to escape to the host or to the guest, and prints for each
// attempt whether it succeeded.
//
//go:embed testdata/attacks.py
var attacks string

// attack is the result of one attempt.
type attack struct {
	Name string `json:"name"`
	Open bool   `json:"open"` // whether the attempt succeeded
	Why  string `json:"why"`
}

// withoutControl lists attacks that a host may refuse as well, because its kernel lacks the feature
// or a setting disables it. On such a host a refusal in the sandbox proves nothing.
var withoutControl = []string{"type-into-terminal", "x32-call", "read-config", "read-keys", "audit-socket", "vsock", "algorithm-socket", "io-uring", "userfaultfd", "bpf", "perf"}

// minAttacks is the minimum number of attempts of the program attacks.
const minAttacks = 40

// attacksFail checks that no attack succeeds in a sandbox.
func attacksFail(t testing.TB, c *Config) {
	if os.Geteuid() == 0 {
		control := attacksOnHost(t)
		for _, a := range control {
			if !a.Open && !slices.Contains(withoutControl, a.Name) {
				t.Errorf("control: %s fails on the host too: %s", a.Name, a.Why)
			}
		}
		if len(control) < minAttacks {
			t.Errorf("control: %d attacks were tried, want at least %d", len(control), minAttacks)
		}
	}
	b := c.start(t, c.Open(t, t.TempDir()))
	for _, as := range []persona{asUser, asRoot} {
		ctx, cancel := hosttest.Bounded(t)
		r, err := b.exec(ctx, string(as), "python3", "-c", attacks, "1")
		cancel()
		if err != nil {
			t.Fatalf("as %s: %v %+v", as, err, r)
		}
		list := decodeAttacks(t, r.stdout)
		if len(list) < minAttacks {
			t.Fatalf("as %s: %d attacks: %+v", as, len(list), r)
		}
		for _, a := range list {
			if a.Open {
				t.Errorf("%s succeeds as %s: %s", a.Name, as, a.Why)
			}
		}
	}
	// The guest and the kernel are unchanged.
	b.want(t, "echo alive", "alive")
}

// attacksOnHost is the control: it runs the attacks as root of the host, outside any sandbox, with
// another process in the role of the guest.
func attacksOnHost(t testing.TB) []attack {
	t.Helper()
	victim := exec.CommandContext(t.Context(), "sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	// The program's mounts, host name and System V objects are in separate namespaces.
	out, err := exec.CommandContext(ctx, "unshare", "-mui", "--propagation", "private", "python3", "-c", attacks, fmt.Sprint(victim.Process.Pid)).CombinedOutput()
	if err != nil {
		t.Fatalf("control: %v %s", err, out)
	}
	return decodeAttacks(t, string(out))
}

// decodeAttacks parses the output of the program attacks.
func decodeAttacks(t testing.TB, text string) (list []attack) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("the attacks printed %q: %v", text, err)
	}
	return list
}

// sharesKernel reports whether programs run on the host's kernel.
func sharesKernel(info engine.Info) bool { return info.Boundary == engine.SharedKernel }
