package microvm_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/microvm"
	"github.com/crannog/crannog/internal/engine/microvm/keeper"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/engine/microvm/microvmtest"
	"github.com/crannog/crannog/internal/engine/microvm/vmm"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The test binary has every role: the keeper of machines, the first process in them, and the probe
// of the boundary from inside.
func TestMain(m *testing.M) {
	reexec.Dispatch(machine.Role(), machine.OverseerRole(), keeper.Role(), enginetest.ProbeRole())
	code := m.Run()
	if shared.dir != "" {
		if err := os.RemoveAll(shared.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared holds the image that all tests use.
var shared struct {
	once  sync.Once
	dir   string
	image *microvmtest.Image
	err   error
}

// sharedVariable names the directory of the shared image for a test process that another one starts.
const sharedVariable = "MICROVM_TEST_IMAGE"

// image returns the shared image, and skips the test if the host cannot run machines.
func image(t testing.TB) *microvmtest.Image {
	t.Helper()
	hosttest.Need(t, hosttest.Program(vmm.Program), microvmtest.Ability, hosttest.Python, hosttest.Bash)
	shared.once.Do(func() {
		if dir := os.Getenv(sharedVariable); dir != "" {
			shared.image = microvmtest.Reopen(dir, filepath.Join(dir, "guest"))
			return
		}
		if shared.dir, shared.err = os.MkdirTemp("/var/tmp", "microvm-image"); shared.err != nil {
			return
		}
		guest := filepath.Join(shared.dir, "guest")
		program, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(guest, program, 0o755)
		}
		if err == nil {
			shared.image, err = microvmtest.Unpack(shared.dir, guest)
		}
		shared.err = err
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.image
}

// startTime bounds how long an emulated machine takes to start its guest on a machine of the usual
// speed. It only ends a hang.
const startTime = 2 * time.Minute

// open returns a function that opens the engine.
func open(noCgroups bool) func(t testing.TB, dir string) engine.Engine {
	return func(t testing.TB, dir string) engine.Engine {
		t.Helper()
		files := image(t)
		e, err := microvm.New(microvm.Options{
			StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Guest: files.Guest(), Kernel: microvmtest.Kernel(),
			Emulate: true, StartTime: hosttest.Patience(startTime), NoCgroups: noCgroups, Images: files,
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// smokeRules lists the rules that make test checks. Each emulates a machine or two. make
// test-microvm checks all rules.
var smokeRules = []string{"state/memory-and-files-continue"}

// testConfig returns the configuration of the conformance tests.
func testConfig(t testing.TB) enginetest.Config {
	t.Helper()
	c := enginetest.Config{Open: declared(open(false)), Image: image(t).OCI(), Residue: microvmtest.Residue, Cycles: 3, MonotonicStops: true, Waive: waived}
	if !hosttest.Full() {
		c.Only = smokeRules
	}
	return c
}

func TestConformance(t *testing.T) { enginetest.Run(t, testConfig(t)) }
