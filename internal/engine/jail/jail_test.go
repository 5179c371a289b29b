package jail_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/jailtest"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The test binary has every role: the first process of a jail, the guest that it becomes, and the
// probes.
func TestMain(m *testing.M) {
	reexec.Dispatch(setup.Role(), setup.ProbeRole(), enginetest.ProbeRole(),
		reexec.Role{Match: reexec.Arg0(ocispec.GuestArg0), Run: guestmain.Main})
	os.Exit(m.Run())
}

func open(noCgroups bool) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		e, err := jail.New(jail.Options{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoCgroups: noCgroups})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

func image(t testing.TB) engine.Image {
	t.Helper()
	// The program is copied, because the path of the test binary must not be visible in a sandbox.
	guest := filepath.Join(t.TempDir(), "guest")
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(guest, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	i, err := template.NewHost(filepath.Join(t.TempDir(), "templates"), guest).Image()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func testConfig(t testing.TB, noCgroups bool) enginetest.Config {
	t.Helper()
	return enginetest.Config{Open: open(noCgroups), Image: image(t), Residue: jailtest.Residue, Cycles: 10}
}

// inherent lists the rules that only sandboxes with their own kernel can fulfil.
var inherent = map[string]string{
	"cover/read-only-moves-with-a-directory-above": "a directory of the host is moved by copying, which a mount in it stops",
	"owners/the-workspace-belongs-to-the-user":     "the kernel maps owners one to one: files of other users stay theirs",
	"owners/permissions-hold-inside":               "as above",
	"owners/protected-paths-can-be-read":           "as above",
}

func TestConformance(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	c := testConfig(t, false)
	c.Waive = inherent
	enginetest.Run(t, c)
}

// Without control groups, memory and CPU are not limited.
func TestConformanceWithoutCgroups(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	c := testConfig(t, true)
	c.Cycles, c.Only = 3, []string{"lifecycle/canceled-create-leaves-nothing", "lifecycle/probe-passes-here", "limits/processes-are-bounded", "limits/usage-grows", "restart/", "leaks/"}
	enginetest.Run(t, c)
}

// withoutDevice opens the engine as on a host on which no network interface can be created.
func withoutDevice(noCgroups bool) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		e, err := jail.New(jail.Options{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoCgroups: noCgroups, NoDevice: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

func TestConformanceWithoutDevice(t *testing.T) {
	c := testConfig(t, os.Geteuid() != 0)
	c.Open, c.Cycles, c.Only = withoutDevice(os.Geteuid() != 0), 3, []string{"proxy/", "lifecycle/undeclared-egress-is-refused"}
	if os.Geteuid() != 0 {
		enginetest.Run(t, c)
		return
	}
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	t.Run("root", func(t *testing.T) { enginetest.Run(t, c) })
	hosttest.RerunUnprivileged(t, "^TestConformanceWithoutDevice$")
}

// For an unprivileged user, everything in a sandbox belongs to one user.
func TestConformanceRootless(t *testing.T) {
	if os.Geteuid() != 0 {
		c := testConfig(t, true)
		c.Cycles = 3
		c.Waive = oneUser
		enginetest.Run(t, c)
		return
	}
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	hosttest.RerunUnprivileged(t, "^TestConformanceRootless$")
}

// oneUser lists the rules that need several user IDs, in addition to the inherent ones.
var oneUser = map[string]string{
	"boundary/host-files-do-not-change":            "its probe, which runs as root, removes files that it needs itself",
	"owners/permissions-hold-inside":               "there is no root inside, whose files the user could not write",
	"owners/the-workspace-belongs-to-the-user":     "there is no root inside to whom a file could be given",
	"archive/has-kinds-owners-and-removals":        "there is no root inside, which removes files of the template",
	"exec/writable-places":                         "the template's files are the user's as well",
	"exec/root-on-request":                         "there is no root inside",
	"cover/read-only-moves-with-a-directory-above": inherent["cover/read-only-moves-with-a-directory-above"],
}
