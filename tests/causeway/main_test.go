// Package causeway_test attacks from inside a sandbox: programs try to get out, or to reach what
// they must not, through the whole product. The tests' own servers are the internet outside.
package causeway_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/cli"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/engine/wasm/runner"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// programName is the name under which this test binary acts as crannog: the whole product, except
// that its gateway uses the fake internet.
const programName = "crannog"

// rootless is set if a user without privileges runs the tests.
var rootless = flag.Bool("rootless", false, "run as a user without rights, as TestRootless does")

// engineVariable is the environment variable that names the engine of all sandboxes, as for the
// program.
const engineVariable = "CRANNOG_DEFAULT_ENGINE"

// attachmentVariable is the environment variable with which the sandboxes of make test-jail have no
// network interface.
const attachmentVariable = "CRANNOG_NETWORK_ATTACHMENT"

// minParallel is the least number of tests that run at the same time.
const minParallel = 4

func TestMain(m *testing.M) {
	reexec.Dispatch(slices.Concat(gvisor.Roles(), []reexec.Role{
		{Match: reexec.Arg0(gateway.Arg0), Run: serveFakeInternet},
		{Match: reexec.Arg0(ocispec.GuestArg0), Run: guestmain.Main},
		{Match: reexec.Arg0(programName), Run: runProgram},
		attachmenttest.TapRole,
		setup.Role(),
		setup.ProbeRole(),
		runner.Role(),
	})...)
	flag.Parse()
	// The tests mostly wait, for answers and for events that must not happen.
	if err := flag.Set("test.parallel", strconv.Itoa(max(minParallel, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runProgram() {
	reexec.Dispatch() // this process has no other role
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Vars: os.Environ(), Config: config.Host(), Version: "test",
	}))
}

// program links this binary into a directory under the product's name and returns its path.
func program(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(hosttest.ShortDir(t), programName)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the tests require of the host.
var (
	sandboxes = hosttest.Requirement{Name: "root, or a call by TestRootless", Has: func() bool { return os.Geteuid() == 0 || *rootless }}
	curl      = hosttest.Program("curl")
	openssl   = hosttest.Program("openssl")
)

// need skips a test, or fails it on CI, if the host lacks what every test or this one requires.
func need(t testing.TB, more ...hosttest.Requirement) {
	t.Helper()
	hosttest.Need(t, append([]hosttest.Requirement{sandboxes, hosttest.Python, curl}, more...)...)
}

// awaitCauseway returns when a state directory's gateway has ended and released its lock.
func awaitCauseway(state string) error {
	lock, err := os.Open(filepath.Join(state, "causeway", "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer lock.Close()
	done := make(chan error, 1)
	go func() { done <- unix.Flock(int(lock.Fd()), unix.LOCK_SH) }()
	select {
	case err := <-done:
		return err
	case <-hosttest.Late():
		log, _ := os.ReadFile(filepath.Join(state, "causeway", "log"))
		return fmt.Errorf("the gateway of %s did not end; its log: %s", state, log)
	}
}

// local opens the product within this process on a state directory.
func local(t testing.TB, state string, w *internet) *crannog.Client {
	t.Helper()
	if err := w.write(state); err != nil {
		t.Fatal(err)
	}
	c, err := crannog.Local(t.Context(), localOptions(state)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// host runs a program outside of sandboxes and returns its output.
func host(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
