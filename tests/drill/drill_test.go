// Package drill_test runs crannog drill as a user does.
package drill_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/drill"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// runDrill runs a drill in a new state directory, and returns its report and exit code.
func runDrill(t *testing.T, args ...string) (drill.Report, int) {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	return runDrillIn(t, hosttest.ShortDir(t), args...)
}

// runDrillIn runs a drill, and compares its report with its JUnit file. The drill must leave nothing.
func runDrillIn(t *testing.T, state string, args ...string) (drill.Report, int) {
	t.Helper()
	junit := filepath.Join(state, "drill.xml")
	cmd := exec.CommandContext(t.Context(), program, append([]string{"--state", state, "--json", "drill", "--junit", junit}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	var report drill.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %q %s", err, out.String(), errs.String())
	}
	text, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
	}
	if err := xml.Unmarshal(text, &suite); err != nil || suite.Tests != len(report.Results) || suite.Failures != report.Broken {
		t.Errorf("the JUnit file has %+v, %v, want what the report has: %d results, %d broken", suite, err, len(report.Results), report.Broken)
	}
	left, err := filepath.Glob(filepath.Join(state, "drill", "files", "attempt-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the drill left files: %v %v", left, err)
	}
	servetest.NothingLeft(t, filepath.Join(state, "drill", "state"))
	return report, cmd.ProcessState.ExitCode()
}

// P94: make test runs one scenario of each goal, make test-drill all.
func TestDrill(t *testing.T) {
	args := []string{"--engine", "gvisor,jail"}
	want := 2 * 3
	if hosttest.Full() {
		all, err := drill.Load("")
		if err != nil {
			t.Fatal(err)
		}
		want = 2 * len(all)
	} else {
		args = append(args, "--only", "host-secret-read,dns-label,git-hook")
	}
	report, code := runDrill(t, args...)
	if code != 0 || report.Held != want || len(report.Results) != want {
		t.Errorf("exit code %d, %d held of %d, want 0 and %d held", code, report.Held, len(report.Results), want)
	}
	for _, r := range report.Results {
		if r.Verdict != drill.Held {
			t.Errorf("%s, %s: %s: %s", r.Engine, r.Name, r.Verdict, r.Reason)
		}
	}
}

// P95: a drill fails if a defence is absent, if its control proves nothing, and if its tools do not
// work in the sandbox.
func TestDrillFails(t *testing.T) {
	for name, want := range map[string]drill.Verdict{"no-defence": drill.Broken, "no-control": drill.Unproven, "no-tool": drill.Unproven} {
		report, code := runDrill(t, "--engine", "jail", "--scenarios", "testdata", "--only", name)
		if code != 1 || len(report.Results) != 1 || report.Results[0].Verdict != want {
			t.Errorf("%s: exit code %d, %+v, want 1 and %s", name, code, report, want)
		}
	}
}

// P95: what cannot run is named, and does not count as held.
func TestDrillNamesWhatCannotRun(t *testing.T) {
	report, code := runDrill(t, "--engine", "wasm", "--only", "dns-label")
	if code != 1 || report.Held != 0 || report.NotRun != 1 || report.Results[0].Reason == "" {
		t.Errorf("exit code %d, %+v, want 1 and one scenario that was not run, with the reason", code, report)
	}
}

// An attack that ends its sandbox does not end the drill.
func TestAttackEndsItsSandbox(t *testing.T) {
	report, code := runDrill(t, "--engine", "jail", "--scenarios", "testdata", "--only", "ends-itself")
	if code != 0 || len(report.Results) != 1 || report.Results[0].Verdict != drill.Held || !slices.Contains(report.Results[0].Stopped, "limit:oom") {
		t.Errorf("exit code %d, %+v, want 0 and a defence that held in a sandbox without memory", code, report)
	}
}
