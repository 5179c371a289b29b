package enginetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// broken are engines with one defect each, and the rules that must detect it.
var broken = map[string]struct {
	as    func(t testing.TB, e like) engine.Engine
	rules []string
}{
	"leaks a process":          {func(t testing.TB, e like) engine.Engine { return leaksProcess{e, t} }, []string{"leaks/cycles-leave-nothing", "copies/cycles-leave-nothing"}},
	"leaks a descriptor":       {func(t testing.TB, e like) engine.Engine { return leaksDescriptor{e, t} }, []string{"leaks/cycles-leave-nothing"}},
	"forgets to remove":        {func(_ testing.TB, e like) engine.Engine { return removesNothing{e} }, []string{"lifecycle/remove-is-idempotent", "restart/remove-works-after-it"}},
	"waits for nothing":        {func(_ testing.TB, e like) engine.Engine { return waitsNot{e} }, []string{"lifecycle/wait-returns-after-remove", "lifecycle/wait-honours-its-context"}},
	"lists nothing":            {func(_ testing.TB, e like) engine.Engine { return listsNothing{e} }, []string{"lifecycle/list-has-every-sandbox", "restart/another-process-finds-the-sandbox"}},
	"takes any ID":             {func(_ testing.TB, e like) engine.Engine { return takesAnyID{e} }, []string{"lifecycle/bad-id-is-invalid"}},
	"takes a taken ID":         {func(_ testing.TB, e like) engine.Engine { return takesTakenID{e} }, []string{"lifecycle/used-id-is-exists"}},
	"takes any root":           {func(_ testing.TB, e like) engine.Engine { return takesAnyRoot{e} }, []string{"lifecycle/bad-root-leaves-nothing"}},
	"takes any egress":         {func(_ testing.TB, e like) engine.Engine { return takesAnyEgress{e} }, []string{"lifecycle/undeclared-egress-is-refused"}},
	"dials vaguely":            {func(_ testing.TB, e like) engine.Engine { return dialsVaguely{e} }, []string{"lifecycle/dial-distinguishes-closed-port-and-unknown-sandbox"}},
	"passes no probe":          {func(_ testing.TB, e like) engine.Engine { return passesNoProbe{e} }, []string{"lifecycle/probe-passes-here"}},
	"does not freeze":          {func(_ testing.TB, e like) engine.Engine { return freezesNot{e} }, []string{"freeze/programs-stop-and-continue", "freeze/unknown-is-not-found"}},
	"does not thaw":            {func(_ testing.TB, e like) engine.Engine { return thawsNot{e} }, []string{"freeze/programs-stop-and-continue"}},
	"saves a frozen one":       {func(_ testing.TB, e like) engine.Engine { return savesFrozen{e} }, []string{"freeze/a-frozen-sandbox-is-not-saved"}},
	"drops a file of archives": {func(_ testing.TB, e like) engine.Engine { return dropsAFile{e} }, []string{"archive/files-are-restored-without-memory"}},
	"archives nothing":         {func(_ testing.TB, e like) engine.Engine { return archivesNothing{e} }, []string{"archive/files-are-restored-without-memory", "freeze/a-frozen-sandbox-is-not-archived"}},
	"saves another part":       {func(_ testing.TB, e like) engine.Engine { return savesMore{e} }, []string{"state/consists-of-its-parts"}},
	"restores anew":            {func(_ testing.TB, e like) engine.Engine { return restoresAnew{e} }, []string{"state/memory-and-files-continue", "state/truncated-is-refused"}},
	"replaces nothing":         {func(_ testing.TB, e like) engine.Engine { return replacesNothing{e} }, []string{"state/replaces-in-place", "state/unknown-is-not-found"}},
	"measures a constant":      {func(_ testing.TB, e like) engine.Engine { return measuresConstant{e} }, []string{"limits/usage-grows"}},
	"shows what is hidden":     {func(_ testing.TB, e like) engine.Engine { return showsHidden{e} }, []string{"files/hidden-paths-are-empty"}},
	"protects nothing":         {func(_ testing.TB, e like) engine.Engine { return writesReadOnly{e} }, []string{"files/read-only-paths-cannot-be-changed"}},
	"writes to the host":       {func(_ testing.TB, e like) engine.Engine { return writesTheHost{e} }, []string{"files/the-workspace-is-copy-on-write"}},
	"observes nothing":         {func(_ testing.TB, e like) engine.Engine { return observesNothing{e} }, []string{"record/each-file-has-its-size-and-checksum", "record/unsupported-observation-is-refused"}},
}

// soon is how long a rule that must fail waits for an event that never happens.
const soon = 3 * time.Second

// The rules about a defect detect it. The fake's own TestConformance shows that these rules pass
// without the defect.
func TestRulesFindDefects(t *testing.T) {
	for name, defect := range broken {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			for _, want := range defect.rules {
				i := slices.IndexFunc(rules(), func(r rule) bool { return r.name == want })
				if i < 0 {
					t.Fatalf("there is no rule %q", want)
				}
				r, c := rules()[i], sound(t)
				c.Open = func(t testing.TB, dir string) engine.Engine { return defect.as(t, like{openFake(t, dir)}) }
				if result := record(t, soon, func(t testing.TB) { r.test(t, c) }); result.passed() || result.text() == "" {
					t.Errorf("%s does not find it: %s", want, result.text())
				} else {
					t.Logf("%s: %.200s", want, result.text())
				}
			}
		})
	}
}
