package gvisor_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The test binary has every role: the engine's child processes, the guest in a sandbox, and the
// probes.
func TestMain(m *testing.M) {
	reexec.Dispatch(append(gvisor.Roles(),
		enginetest.ProbeRole(),
		reexec.Role{Match: reexec.Arg0(ocispec.GuestArg0), Run: guestmain.Main},
	)...)
	os.Exit(m.Run())
}

// open returns a function that opens an engine on a state directory.
func open(noCgroups bool) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		e, err := gvisor.New(gvisor.Options{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoCgroups: noCgroups})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// root returns an image that shows the host, with this test binary as the guest.
func root(t testing.TB) engine.Image {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := template.NewHost(filepath.Join(t.TempDir(), "templates"), self).Image()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// suite returns the configuration of the contract's rules for this engine.
func suite(t testing.TB, noCgroups bool) enginetest.Config {
	t.Helper()
	c := enginetest.Config{
		Open: open(noCgroups), Image: root(t), Residue: gvisortest.Residue, Forbidden: []string{become},
	}
	if !noCgroups {
		c.Groups = groupsOf
	}
	return c
}

func TestConformance(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	// tests/cycles creates hundreds of sandboxes through a server on this engine. Here a few are
	// enough to show which resources a sandbox leaves behind.
	cycles := 15
	if hosttest.Full() {
		cycles = 100
	}
	// On the slow machine that tests/unified boots, each cycle takes long, so it sets a small
	// number.
	if text := os.Getenv("CRANNOG_TEST_CYCLES"); text != "" {
		var err error
		if cycles, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := suite(t, false)
	c.Cycles = cycles
	enginetest.Run(t, c)
}

func BenchmarkConformance(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Python, hosttest.Bash)
	enginetest.Benchmarks(b, suite(b, false))
}

// only returns the rules that make test checks for a second configuration of the engine. For make
// test-full it returns nil, which stands for all rules.
func only(rules ...string) []string {
	if hosttest.Full() {
		return nil
	}
	return rules
}

// Without control groups, other code limits a sandbox, finds its processes and ends them.
func TestConformanceWithoutCgroups(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	rules := only("lifecycle/canceled-create-leaves-nothing", "lifecycle/probe-passes-here", "leaks/cycles-leave-nothing",
		"limits/cpu-is-bounded", "limits/limits-that-are-not-shown-are-read-back", "limits/memory-ends-the-sandbox-with-a-reason",
		"restart/another-process-finds-the-sandbox", "freeze/programs-stop-and-continue", "state/a-copy-has-a-separate-memory-limit")
	c := suite(t, true)
	c.Cycles, c.Only = 3, rules
	c.Waive = map[string]string{"limits/cpu-is-bounded": "without groups only whole processors can be requested"}
	enginetest.Run(t, c)
}

// P14: an unprivileged user gets the same sandboxes if user namespaces are allowed. Users, mounts,
// networks and the rights of the engine's processes are set up differently. The sandbox's own
// kernel works in the same way.
func TestConformanceRootless(t *testing.T) {
	if os.Geteuid() != 0 {
		rules := only("boundary/", "owners/", "imageowners/", "namespaces/", "leaks/cycles-leave-nothing",
			"cover/hidden-paths-are-empty", "cover/read-only-paths-cannot-be-changed",
			"lifecycle/create-is-ready", "lifecycle/probe-passes-here", "lifecycle/canceled-create-leaves-nothing",
			"limits/cpu-is-bounded", "limits/memory-ends-the-sandbox-with-a-reason", "limits/processes-are-bounded",
			"restart/another-process-finds-the-sandbox", "exec/root-on-request", "exec/runs-as-the-user", "exec/writable-places",
			"link/raw-packets-are-refused", "link/reaches-its-peer-and-nothing-else",
			"archive/has-kinds-owners-and-removals", "freeze/programs-stop-and-continue", "state/memory-files-and-listeners-continue",
			"copies/have-their-own-links", "changes/exported-files-equal-those-in-the-sandbox")
		c := suite(t, true)
		c.Cycles, c.Only = 3, rules
		c.Waive = map[string]string{
			"limits/cpu-is-bounded":                      "without groups only whole processors can be requested",
			"copies/a-full-disk-does-not-end-the-source": "only root can mount the small disk of the rule",
		}
		enginetest.Run(t, c)
		return
	}
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	hosttest.RerunUnprivileged(t, "^TestConformanceRootless$")
}
