package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// probe runs the probe program in a sandbox as a persona and returns its results.
func (b *testSandbox) probe(t testing.TB, c *Config, as persona, args ...string) []answer {
	t.Helper()
	user := string(as)
	if as == asOwner {
		user, args = string(asUser), append([]string{inNamespaces}, args...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	r, err := b.exec(ctx, user, append([]string{c.Image.Guest, probeArg}, args...)...)
	if err != nil || r.code != 0 {
		t.Fatalf("%s as %s: %v %+v", args[0], as, err, r)
	}
	return decodeAnswers(t, []byte(r.stdout))
}

// probeHost runs the probe program on the host, where the probes must succeed. Its mounts and
// addresses are in separate namespaces. If this process is not root, the program is root in a user
// namespace.
func probeHost(t testing.TB, args ...string) []answer {
	t.Helper()
	sleeper := exec.CommandContext(t.Context(), "sleep", "600")
	if os.Geteuid() == 0 {
		sleeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{probeArg}, args...)...)
	if os.Geteuid() == 0 {
		// A mount namespace that is unshared after the start does not propagate mounts to the host.
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS}
	} else {
		cmd.SysProcAttr = ownNamespaces()
	}
	cmd.Env = []string{controlEnv + "=1", fmt.Sprintf("%s=%d", traceeEnv, sleeper.Process.Pid)}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("control: %v %s", err, &stderr)
	}
	return decodeAnswers(t, out)
}

// ownKernel reports whether the sandboxes of an engine have a kernel other than the host's.
func ownKernel(e engine.Engine) bool { return e.Info().Boundary.AtLeast(engine.UserspaceKernel) }

// personas returns the users as which a probe is tried. If sandboxes share the host's kernel, no
// program may create namespaces, because in them it would have rights over that kernel. Root is
// last, because it removes files that the others need.
func personas(e engine.Engine) []persona {
	if ownKernel(e) {
		return []persona{asUser, asOwner, asRoot}
	}
	return []persona{asUser, asRoot}
}

// decodeAnswers parses the output of the probe program.
func decodeAnswers(t testing.TB, out []byte) (list []answer) {
	t.Helper()
	for line := range bytes.Lines(out) {
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("the probe printed %q: %v", line, err)
		}
		list = append(list, a)
	}
	return list
}

// probesAreRefused checks that every dangerous system call is refused in a sandbox.
func probesAreRefused(t testing.TB, c *Config) {
	if os.Geteuid() == 0 {
		wantControl(t, probeHost(t, append([]string{makeCalls}, probeNames()...)...))
	}
	b := c.start(t, c.Open(t, t.TempDir()))
	for _, as := range personas(b.e) {
		list := b.probe(t, c, as, append([]string{makeCalls}, probeNames()...)...)
		if len(list) != len(probes) {
			t.Fatalf("as %s: %d answers to %d probes: %+v", as, len(list), len(probes), list)
		}
		for _, a := range list {
			p := probes[a.Name]
			switch refused, allowed := p.refused(a), p.allowed[as] != ""; {
			case !refused && !allowed:
				t.Errorf("%s as %s is not refused: %q", a.Name, as, a.Text)
			case refused && allowed && ownKernel(b.e):
				t.Errorf("%s as %s is refused (%s), but listed as allowed: %s", a.Name, as, a.Text, p.allowed[as])
			}
		}
	}
}

// wantControl checks that every probe is permitted on the host, except those for which the host's
// answer shows that it lacks the feature.
func wantControl(t testing.TB, list []answer) {
	t.Helper()
	if len(list) != len(probes) {
		t.Fatalf("control: %d answers to %d probes: %+v", len(list), len(probes), list)
	}
	permitted := 0
	for _, a := range list {
		p := probes[a.Name]
		off, _ := os.ReadFile(p.off.path)
		switch {
		case a.Errno == 0 && a.Text != "":
			t.Errorf("control of %s: %s", a.Name, a.Text)
		case !p.refused(a):
			permitted++
		case slices.Contains(p.lacks, a.Errno):
			t.Logf("%s has no control here: the host itself answers %q", a.Name, a.Text)
		case p.off.path != "" && strings.TrimSpace(string(off)) == p.off.value:
			t.Logf("%s has no control here: %s is %s, and the host answers %q", a.Name, p.off.path, p.off.value, a.Text)
		case hosttest.Must():
			t.Errorf("control of %s: %s on the host as root, so its refusal in the sandbox proves nothing", a.Name, a.Text)
		default:
			t.Logf("%s has no control here: %s on the host as root", a.Name, a.Text)
		}
	}
	t.Logf("%d of %d probes are permitted on this host", permitted, len(list))
}
