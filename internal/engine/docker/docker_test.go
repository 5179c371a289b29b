package docker_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker"
	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/engine/docker/inside"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// guestPath is the path of the guest's program in a sandbox.
const guestPath = "/.crannog/crannog-guest"

// The test binary is also the guest, and the program that attacks the boundary from a sandbox.
func TestMain(m *testing.M) {
	reexec.Dispatch(
		enginetest.ProbeRole(),
		reexec.Role{Match: matchGuest(guestboot.ChannelRole), Run: guestmain.Channel},
		reexec.Role{Match: matchGuest(guestboot.GatewayRole), Run: guestmain.Gateway},
		reexec.Role{Match: matchGuest(guestboot.FilesRole), Run: inside.Role().Run},
		reexec.Role{Match: matchGuest(guestboot.PlainFlag), Run: guestmain.Main},
	)
	code := m.Run()
	if shared.daemon != nil {
		if err := shared.daemon.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop dockerd:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// matchGuest returns a function that matches the arguments of this program when it is started as
// the guest with the given first argument.
func matchGuest(first string) func(args []string) bool {
	return func(args []string) bool { return len(args) > 1 && args[0] == guestPath && args[1] == first }
}

// shared is the daemon of all tests that do not kill it.
var shared struct {
	once   sync.Once
	daemon *dockertest.Daemon
	image  engine.OCI
	runsc  string // gVisor's program, or ""
	err    error
}

// daemon returns the shared daemon and the image of its sandboxes.
func daemon(t testing.TB) (*dockertest.Daemon, engine.Image) {
	t.Helper()
	hosttest.Need(t, hosttest.Root, dockertest.Requirement, hosttest.Python, hosttest.Bash)
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("/var/tmp", "dkr")
		if err == nil {
			shared.runsc = os.Getenv("CRANNOG_TEST_RUNSC")
			if shared.runsc == "" && hosttest.Full() {
				shared.runsc, err = dockertest.BuildRunsc(dir)
			}
		}
		if err == nil {
			shared.daemon, err = dockertest.Start(dir, dockertest.Options{Runsc: shared.runsc})
		}
		if err == nil {
			shared.image, err = shared.daemon.Import(context.Background(), "test:1")
		}
		shared.err = err
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	image := shared.image
	return shared.daemon, engine.Image{OCI: &image, Guest: guestPath}
}

// opener returns a function that opens an engine on the daemon with an OCI runtime.
func opener(d *dockertest.Daemon, runtime string) func(t testing.TB, dir string) engine.Engine {
	return openerWith(docker.Options{Host: d.Host, Runtime: runtime})
}

// openerWith returns a function that opens an engine with these options.
func openerWith(o docker.Options) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		o := o
		o.StateDir, o.Log, o.Guest = dir, slog.New(slog.NewTextHandler(t.Output(), nil)), self
		e, err := docker.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
}

// residue counts the daemon's resources of a state directory, without its images, which stay for
// later sandboxes.
func residue(d *dockertest.Daemon) func(t testing.TB, dir string) map[string]int {
	return func(t testing.TB, dir string) map[string]int {
		t.Helper()
		counts, err := d.CountObjects(context.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
}

func TestConformance(t *testing.T) {
	d, image := daemon(t)
	c := enginetest.Config{Open: opener(d, ""), Image: image, Residue: residue(d), Cycles: 20, LosesOnlyPrograms: true, Waive: waived}
	if !hosttest.Full() {
		c.Only, c.Cycles = smoke, 3
	}
	enginetest.Run(t, c)
}

// The daemon's other runtime gets the same request, but applies it differently.
func TestConformanceOfCrun(t *testing.T) {
	d, image := daemon(t)
	hosttest.Need(t, hosttest.Program("crun"))
	c := enginetest.Config{Open: opener(d, "crun"), Image: image, Residue: residue(d), Cycles: 3, LosesOnlyPrograms: true, Waive: waived, Only: []string{"lifecycle/create-is-ready"}}
	if hosttest.Full() {
		c.Only = append(smoke[:len(smoke):len(smoke)], "limits/", "boundary/")
	}
	enginetest.Run(t, c)
}

// runscRules lists the rules for the runtime runsc, whose kernel is the engine gvisor's and has that
// engine's tests.
var runscRules = []string{
	"lifecycle/create-is-ready", "lifecycle/probe-passes-here", "lifecycle/used-id-is-exists", "files/", "freeze/", "archive/",
	"restart/another-process-finds-the-sandbox", "boundary/probes-are-refused", "boundary/only-loopback", "boundary/host-secrets-are-absent",
	"limits/limits-that-are-not-shown-are-read-back", "proxy/", "leaks/",
}

// P83: a container with the runtime runsc keeps the rules that do not depend on the host's kernel.
func TestConformanceOfRunsc(t *testing.T) {
	d, image := daemon(t)
	if shared.runsc == "" {
		t.Skip("part of make test-docker, because it builds gVisor's program")
	}
	without := maps.Clone(waived)
	maps.Copy(without, waivedWithRunsc)
	enginetest.Run(t, enginetest.Config{Open: opener(d, "runsc"), Image: image, Residue: residue(d), Cycles: 3, LosesOnlyPrograms: true, Waive: without, Only: runscRules})
}

// waivedWithRunsc lists the rules that containers with runsc cannot keep, with the reasons.
var waivedWithRunsc = map[string]string{
	"files/read-only-paths-cannot-be-changed": "runsc ignores the paths of a volume that a container protects, so a policy with any is refused",
	"files/hidden-paths-are-empty":            "runsc ignores the paths of a volume that a container protects, so a policy with any is refused",
	"boundary/probes-are-refused":             "gVisor gives no user namespace to a program without rights, and the rule compares with one",
}

// A daemon of another host makes no network device here.
func TestConformanceWithoutDevice(t *testing.T) {
	d, image := daemon(t)
	c := enginetest.Config{
		Open: openerWith(docker.Options{Host: d.Host, NoDevice: true}), Image: image, Residue: residue(d), Cycles: 3, LosesOnlyPrograms: true, Only: []string{"proxy/"},
	}
	if !hosttest.Full() {
		c.Only = []string{"proxy/connections-and-names-reach-the-gateway", "proxy/nothing-else-leaves", "proxy/continues-after-a-restart"}
	}
	enginetest.Run(t, c)
}

// smoke lists the rules that the command "make test" checks. "make test-docker" checks all rules.
var smoke = []string{
	"lifecycle/create-is-ready", "lifecycle/probe-passes-here", "lifecycle/canceled-create-leaves-nothing", "lifecycle/used-id-is-exists", "images/",
	"files/", "freeze/", "archive/files-are-restored-without-memory", "restart/another-process-finds-the-sandbox", "boundary/probes-are-refused", "boundary/only-loopback", "boundary/host-secrets-are-absent",
	"limits/memory-ends-the-sandbox-with-a-reason", "limits/processes-are-bounded", "limits/limits-that-are-not-shown-are-read-back", "leaks/",
}

// waived lists the rules that this engine cannot keep, with the reasons. They need root in the
// sandbox, namespaces that programs create, or a workspace that is not a copy.
var waived = map[string]string{
	"exec/root-on-request":                              "no program in a container without capabilities is root",
	"exec/writable-places":                              "/etc is a tmpfs of the sandbox's only user, because the guest, which is that user, writes it",
	"owners/the-workspace-belongs-to-the-user":          "the only user owns /etc, and cannot give files away",
	"owners/permissions-hold-inside":                    "the only user owns /etc, and there is no root for the control",
	"cover/mounts-are-shown-at-their-paths":             "nothing of the host is mounted, so that the daemon may be on another one",
	"cover/volumes-are-bounded-by-their-file-system":    "the tests' daemon has mounts of its own: TestVolumesWithHostMounts",
	"boundary/host-files-do-not-change":                 "the only user owns /etc, and the probe removes the table of users there before it asks to be another one",
	"changes/exported-files-equal-those-in-the-sandbox": "the workspace is a copy, so each file has a new time of change and is read",
	"changes/a-forged-time-does-not-hide-a-change":      "the workspace is a copy, so each file has a new time of change and is read",
	"boundary/host-identity-is-not-shown":               "the kernel's version and boot ID are the host's, because the kernel is",
	"archive/has-kinds-owners-and-removals":             "no root changes the image's files; TestArchiveOfWorkspace checks kinds and removals",
	"boundary/set-id-gives-no-rights":                   "there is no root that could make such a file",
}
