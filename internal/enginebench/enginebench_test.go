package enginebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/crannog/crannog/api"
)

// recordingLab creates sandboxes whose commands do nothing, and records what happens.
type recordingLab struct {
	engines []api.Engine
	// refuses is the engine that creates no sandbox.
	refuses string
	// fails is a program that fails in every sandbox.
	fails   string
	wants   []Want
	ran     []string // engine and command
	alive   int
	removed int
}

func (l *recordingLab) Engines(context.Context) ([]api.Engine, error) { return l.engines, nil }
func (l *recordingLab) Warm() bool                                    { return false }

func (l *recordingLab) Create(_ context.Context, want Want) (Sandbox, error) {
	if want.Engine == l.refuses {
		return nil, errors.New("the policy refuses this engine")
	}
	l.wants = append(l.wants, want)
	l.alive++
	return &recordingSandbox{l, want.Engine}, nil
}

type recordingSandbox struct {
	lab    *recordingLab
	engine string
}

func (s *recordingSandbox) Run(_ context.Context, argv ...string) (string, error) {
	s.lab.ran = append(s.lab.ran, s.engine+" "+argv[0])
	switch {
	case argv[0] == s.lab.fails:
		return "", errors.New("exit code 1")
	case len(argv) == 5 && strings.Contains(argv[2], "command -v"):
		return map[bool]string{true: "yes\n", false: "no\n"}[argv[4] != "node"], nil
	}
	return "ok\n", nil
}

func (s *recordingSandbox) Write(context.Context, string, []byte) error { return nil }

func (s *recordingSandbox) Snapshot(context.Context) (string, error) {
	return "", errAbsent("the engine saves no state")
}

func (s *recordingSandbox) Fork(context.Context) (string, error) { return "files", nil }

func (s *recordingSandbox) Remove(ctx context.Context) error {
	s.lab.alive--
	s.lab.removed++
	return ctx.Err()
}

// twoEngines are engines that start from the host's programs, and others that cannot be measured.
func twoEngines() []api.Engine {
	return []api.Engine{
		{Name: "one", Boundary: "userspace-kernel", Available: true, Images: []string{"host-view", "oci"}},
		{Name: "two", Boundary: "shared-kernel", Available: true, Images: []string{"host-view"}},
		{Name: "images", Boundary: "shared-kernel", Available: true, Images: []string{"oci"}},
		{Name: "absent", Boundary: "own-kernel", Reason: "there is no KVM", Fix: "enable it", Images: []string{"oci"}},
	}
}

func runIDs(t *testing.T, lab *recordingLab, only ...string) Report {
	t.Helper()
	report, err := Run(t.Context(), lab, Options{Rounds: 3, Only: only}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if lab.alive != 0 {
		t.Errorf("%d sandboxes are left", lab.alive)
	}
	return report
}

func valueOn(t *testing.T, r Report, id, on string) Value {
	t.Helper()
	for _, row := range r.Measurements {
		for _, v := range row.Values {
			if row.ID == id && v.On == on {
				return v
			}
		}
	}
	t.Fatalf("no value of %s on %s in %+v", id, on, r.Measurements)
	return Value{}
}

func TestEnginesTakeTurns(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()}
	report := runIDs(t, lab, "exec")
	want := []string{
		"one true", "two true", // the round that is not counted
		"one true", "two true", // begins with the host
		"one true", "two true", // begins with one
		"two true", "one true", // begins with two
	}
	if !slices.Equal(lab.ran, want) {
		t.Errorf("commands ran in the order %q, want %q", lab.ran, want)
	}
	for _, on := range []string{HostName, "one", "two"} {
		if v := valueOn(t, report, "exec", on); v.N != 3 || v.P50 < 0 || v.Reason != "" {
			t.Errorf("value on %s is %+v, want 3 rounds", on, v)
		}
	}
}

func TestReportNamesWhyAnEngineIsNotMeasured(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()}
	report := runIDs(t, lab, "exec")
	for name, part := range map[string]string{"images": "host's programs", "absent": "no KVM"} {
		i := slices.IndexFunc(report.Engines, func(e Engine) bool { return e.Name == name })
		if e := report.Engines[i]; e.Measured || !strings.Contains(e.Reason, part) || e.Fix == "" {
			t.Errorf("engine %s is reported as %+v, want a reason with %q and a fix", name, e, part)
		}
	}
	lab = &recordingLab{engines: twoEngines()}
	report, err := Run(t.Context(), lab, Options{Rounds: 1, Image: "debian:12", Only: []string{"exec"}}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if e := report.Engines[1]; e.Measured || !strings.Contains(e.Reason, "OCI") {
		t.Errorf("with an image, engine two is reported as %+v", e)
	}
	for _, w := range lab.wants {
		if w.Image != "debian:12" {
			t.Errorf("a sandbox was requested without the image: %+v", w)
		}
	}
}

func TestAFailureOfOneEngineKeepsTheOthers(t *testing.T) {
	lab := &recordingLab{engines: twoEngines(), refuses: "one"}
	report := runIDs(t, lab, "create", "exec")
	for _, id := range []string{"create", "exec"} {
		if v := valueOn(t, report, id, "one"); v.N != 0 || !strings.Contains(v.Reason, "refuses") {
			t.Errorf("%s on one is %+v, want the reason", id, v)
		}
		if v := valueOn(t, report, id, "two"); v.N != 3 {
			t.Errorf("%s on two is %+v, want 3 values", id, v)
		}
	}
}

func TestMissingProgramsAndStatesHaveAReason(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()}
	report := runIDs(t, lab, "node", "snapshot", "fork")
	if v := valueOn(t, report, "node", "one"); v.N != 0 || v.Reason != "node is not installed" {
		t.Errorf("node on one is %+v", v)
	}
	if v := valueOn(t, report, "snapshot", "two"); v.N != 0 || v.Reason != "the engine saves no state" {
		t.Errorf("snapshot on two is %+v", v)
	}
	if v := valueOn(t, report, "snapshot", HostName); v.N != 0 || v.Reason == "" {
		t.Errorf("snapshot on the host is %+v", v)
	}
	if v := valueOn(t, report, "fork", "two"); v.N != 3 || v.Note != "files" {
		t.Errorf("fork on two is %+v", v)
	}
}

func TestAFailedCommandIsNoValue(t *testing.T) {
	lab := &recordingLab{engines: twoEngines(), fails: "true"}
	if v := valueOn(t, runIDs(t, lab, "exec"), "exec", "one"); v.N != 0 || !strings.Contains(v.Reason, "exit code 1") {
		t.Errorf("exec of a program that fails is %+v, want the error", v)
	}
}

func TestColdSandboxesHaveLimitsOfTheirOwn(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()}
	// The fake clock of synctest ends the idle time at once.
	synctest.Test(t, func(t *testing.T) { runIDs(t, lab, "create", "memory") })
	seen := map[string]bool{}
	for _, w := range lab.wants {
		key := fmt.Sprint(w.Engine, w.MemoryBytes)
		if seen[key] || w.MemoryBytes < firstLimit {
			t.Errorf("a sandbox was requested with the limit of an earlier one: %+v", w)
		}
		seen[key] = true
	}
	if want := 2 * (4 + 3*idleSandboxes); len(lab.wants) != want {
		t.Errorf("%d sandboxes were created, want %d", len(lab.wants), want)
	}
}

func TestAnInterruptRemovesTheSandboxes(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, lab, Options{Rounds: 3, Only: []string{"exec"}}, func(text string) {
		if strings.Contains(text, "round 2") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted run returned %v", err)
	}
	if lab.alive != 0 || lab.removed != 2 {
		t.Errorf("after an interrupt, %d sandboxes are left and %d were removed", lab.alive, lab.removed)
	}
}

func TestARemoteServerHasNoFiguresOfTheHost(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()[:1]}
	report, err := Run(t.Context(), lab, Options{Rounds: 1, Remote: true, Only: []string{"exec"}}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if values := report.Measurements[0].Values; len(values) != 1 || values[0].On != "one" || report.Machine != nil {
		t.Errorf("the report has %+v of %+v, want only the engine's", values, report.Machine)
	}
	if slices.Contains(IDs(Options{Remote: true}), "memory") {
		t.Error("the memory of another host can be measured")
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no rounds":           {},
		"too many rounds":     {Rounds: maxRounds + 1},
		"unknown measurement": {Rounds: 1, Only: []string{"speed"}},
		"no URL":              {Rounds: 1, Only: []string{"request"}},
		"unknown engine":      {Rounds: 1, Engines: []string{"three"}},
	} {
		if _, err := Run(t.Context(), &recordingLab{engines: twoEngines()}, o, func(string) {}); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: the error is %v, want ErrOptions", name, err)
		}
	}
	_, err := Run(t.Context(), &recordingLab{engines: twoEngines()[2:]}, Options{Rounds: 1}, func(string) {})
	if !errors.Is(err, ErrNoEngine) {
		t.Errorf("without an engine that can be measured, the error is %v, want ErrNoEngine", err)
	}
}

func TestRequestsReachOnlyTheirHost(t *testing.T) {
	lab := &recordingLab{engines: twoEngines()[:1]}
	o := Options{Rounds: 1, Only: []string{"exec", "request"}, URL: "https://registry.npmjs.org/left-pad"}
	if _, err := Run(t.Context(), lab, o, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if len(lab.wants) != 2 || lab.wants[0].Host != "" || lab.wants[1].Host != "registry.npmjs.org" {
		t.Errorf("sandboxes may reach %+v, want nothing and then the URL's host", lab.wants)
	}
}

func TestPercentile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := Percentile(values, p); got != want {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
	if got := Percentile(nil, 0.5); got != 0 {
		t.Errorf("the percentile of no values is %v, want 0", got)
	}
}

func TestEscapeResults(t *testing.T) {
	for _, engine := range []string{"gvisor", "jail"} {
		e := escapesOf(engine)
		if e == nil || e.Attempts < 85 || e.Blocked+e.Harmless != e.Attempts {
			t.Errorf("the result of the escape suite on %s is %+v", engine, e)
		}
	}
	if e := escapesOf("wasm"); e == nil || e.Attempts < 35 || e.Blocked != e.Attempts {
		t.Errorf("the result of the escape suite on wasm is %+v", e)
	}
	if e := escapesOf("one"); e != nil {
		t.Errorf("an engine on which the suite has not run has the result %+v", e)
	}
}
