package enginetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// defects holds engines with one defect each, and the rules that must detect the defect.
var defects = map[string]struct {
	open  func(t testing.TB, e correct) engine.Engine
	rules []string
}{
	"leaks a process":           {func(t testing.TB, e correct) engine.Engine { return leaksProcess{e, t} }, []string{"leaks/cycles-leave-nothing", "copies/cycles-leave-nothing"}},
	"leaks a descriptor":        {func(t testing.TB, e correct) engine.Engine { return leaksDescriptor{e, t} }, []string{"leaks/cycles-leave-nothing"}},
	"ignores remove":            {func(_ testing.TB, e correct) engine.Engine { return ignoresRemove{e} }, []string{"lifecycle/remove-is-idempotent", "restart/remove-works-after-it"}},
	"does not wait":             {func(_ testing.TB, e correct) engine.Engine { return returnsFromWaitAtOnce{e} }, []string{"lifecycle/wait-returns-after-remove", "lifecycle/wait-honours-its-context"}},
	"lists nothing":             {func(_ testing.TB, e correct) engine.Engine { return listsNoSandbox{e} }, []string{"lifecycle/list-has-every-sandbox", "restart/another-process-finds-the-sandbox"}},
	"accepts an invalid ID":     {func(_ testing.TB, e correct) engine.Engine { return acceptsInvalidID{e} }, []string{"lifecycle/bad-id-is-invalid"}},
	"accepts a used ID":         {func(_ testing.TB, e correct) engine.Engine { return acceptsUsedID{e} }, []string{"lifecycle/used-id-is-exists"}},
	"accepts a missing image":   {func(_ testing.TB, e correct) engine.Engine { return acceptsMissingImage{e} }, []string{"lifecycle/bad-root-leaves-nothing"}},
	"accepts undeclared egress": {func(_ testing.TB, e correct) engine.Engine { return acceptsUndeclaredEgress{e} }, []string{"lifecycle/undeclared-egress-is-refused"}},
	"hides a closed port":       {func(_ testing.TB, e correct) engine.Engine { return hidesClosedPort{e} }, []string{"lifecycle/dial-distinguishes-closed-port-and-unknown-sandbox"}},
	"fails its probe":           {func(_ testing.TB, e correct) engine.Engine { return failsProbe{e} }, []string{"lifecycle/probe-passes-here"}},
	"does not freeze":           {func(_ testing.TB, e correct) engine.Engine { return ignoresFreeze{e} }, []string{"freeze/programs-stop-and-continue", "freeze/unknown-is-not-found"}},
	"does not thaw":             {func(_ testing.TB, e correct) engine.Engine { return ignoresThaw{e} }, []string{"freeze/programs-stop-and-continue"}},
	"saves a frozen sandbox":    {func(_ testing.TB, e correct) engine.Engine { return savesFrozenSandbox{e} }, []string{"freeze/a-frozen-sandbox-is-not-saved"}},
	"archives without one file": {func(_ testing.TB, e correct) engine.Engine { return archivesWithoutOneFile{e} }, []string{"archive/files-are-restored-without-memory"}},
	"archives nothing":          {func(_ testing.TB, e correct) engine.Engine { return archivesNothing{e} }, []string{"archive/files-are-restored-without-memory", "freeze/a-frozen-sandbox-is-not-archived"}},
	"archives to no disk":       {func(_ testing.TB, e correct) engine.Engine { return ignoresWriter{e} }, []string{"archive/an-error-of-the-writer-is-named"}},
	"saves an undeclared part":  {func(_ testing.TB, e correct) engine.Engine { return savesUndeclaredPart{e} }, []string{"state/consists-of-its-parts"}},
	"restores as a new sandbox": {func(_ testing.TB, e correct) engine.Engine { return restoresAsNewSandbox{e} }, []string{"state/memory-and-files-continue", "state/truncated-is-refused"}},
	"ignores replace":           {func(_ testing.TB, e correct) engine.Engine { return ignoresReplace{e} }, []string{"state/replaces-in-place", "state/unknown-is-not-found"}},
	"measures a constant":       {func(_ testing.TB, e correct) engine.Engine { return measuresConstantUsage{e} }, []string{"limits/usage-grows"}},
	"ignores hidden paths":      {func(_ testing.TB, e correct) engine.Engine { return ignoresHide{e} }, []string{"files/hidden-paths-are-empty"}},
	"ignores read-only paths":   {func(_ testing.TB, e correct) engine.Engine { return ignoresReadOnly{e} }, []string{"files/read-only-paths-cannot-be-changed"}},
	"changes host files":        {func(_ testing.TB, e correct) engine.Engine { return changesHostFiles{e} }, []string{"files/the-workspace-is-copy-on-write"}},
	"ignores events":            {func(_ testing.TB, e correct) engine.Engine { return ignoresEvents{e} }, []string{"record/each-file-has-its-size-and-checksum", "record/unsupported-observation-is-refused"}},
}

// failTimeout is how long a rule that must fail waits for an event that never happens.
const failTimeout = 3 * time.Second

// Each defect is detected by its rules. TestConformance of the fake engine shows that these rules
// pass without the defect.
func TestRulesFindDefects(t *testing.T) {
	for name, defect := range defects {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			for _, want := range defect.rules {
				i := slices.IndexFunc(rules(), func(r rule) bool { return r.name == want })
				if i < 0 {
					t.Fatalf("there is no rule %q", want)
				}
				r, c := rules()[i], fakeConfig(t)
				c.Open = func(t testing.TB, dir string) engine.Engine { return defect.open(t, correct{openFake(t, dir)}) }
				if result := record(t, failTimeout, func(t testing.TB) { r.test(t, c) }); result.passed() || result.text() == "" {
					t.Errorf("the rule %s does not find the defect: %s", want, result.text())
				} else {
					t.Logf("%s: %.200s", want, result.text())
				}
			}
		})
	}
}
