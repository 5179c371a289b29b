package enginetest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// The rules that run depend only on the features that an engine declares.
func TestPlanDependsOnDeclaredFeatures(t *testing.T) {
	allCapabilities := []engine.Capability{engine.CanMeasure, engine.CanObserve, engine.CanFreeze, engine.CanCheckpoint, engine.CanBind, engine.CanArchive, engine.CanWarm}
	allLimits := []engine.Limit{engine.LimitMemory, engine.LimitCPU, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm}
	fullInfo := engine.Info{
		Boundary: engine.OwnKernel, Capabilities: allCapabilities, Enforces: allLimits, Shows: allLimits,
		Images: []engine.ImageKind{engine.ImageHostView}, Egress: []engine.EgressKind{engine.EgressNone, engine.EgressPackets, engine.EgressProxy},
	}
	fullInfo.OwnRoot, fullInfo.Volumes, fullInfo.TakesWorkspace = true, true, true
	fullConfig := Config{Image: engine.ViewOf("/view", "/guest"), Groups: func(testing.TB, string) map[string][]string { return nil }, Forbidden: []string{"false"}}
	skippedRules := func(change func(i *engine.Info, c *Config)) []string {
		i, c := fullInfo, fullConfig
		i.Capabilities, i.Enforces, i.Shows = slices.Clone(allCapabilities), slices.Clone(allLimits), slices.Clone(allLimits)
		change(&i, &c)
		run, skipped := c.plan(i)
		if len(run)+len(skipped) != len(rules()) {
			t.Errorf("%d rules run and %d are skipped, want %d in all", len(run), len(skipped), len(rules()))
		}
		var names []string
		for _, reason := range skipped {
			name, _, _ := strings.Cut(reason, " ")
			names = append(names, name)
		}
		return names
	}
	withoutCapability := func(c engine.Capability) func(*engine.Info, *Config) {
		return func(i *engine.Info, _ *Config) {
			i.Capabilities = slices.DeleteFunc(i.Capabilities, func(other engine.Capability) bool { return other == c })
		}
	}
	for name, c := range map[string]struct {
		change func(i *engine.Info, c *Config)
		// skipped lists the rules and groups that do not run. All others run, except those in
		// ignored, which are not checked.
		skipped []string
		ignored []string
	}{
		"everything":  {func(*engine.Info, *Config) {}, nil, nil},
		"no meter":    {withoutCapability(engine.CanMeasure), []string{"limits/usage-grows", "limits/cpu-is-bounded"}, nil},
		"no observer": {withoutCapability(engine.CanObserve), []string{"record/", "prestarted/are-watched-when-used"}, nil},
		"no freezer":  {withoutCapability(engine.CanFreeze), []string{"freeze/"}, nil},
		"no archiver": {withoutCapability(engine.CanArchive), []string{"archive/", "freeze/a-frozen-sandbox-is-not-archived"}, nil},
		"no warmer":   {withoutCapability(engine.CanWarm), []string{"prestarted/"}, nil},
		"no binder":   {withoutCapability(engine.CanBind), []string{"bound/"}, nil},
		"no checkpointer": {withoutCapability(engine.CanCheckpoint), []string{
			"state/", "workspace/", "memory/", "copies/", "prestarted/", "bound/", "benchmarks/", "owners/hold-in-a-copy", "imageowners/hold-in-a-copy", "freeze/a-frozen-sandbox-is-not-saved",
			"archive/nothing-runs-while-files-are-extracted", "archive/busy-programs-do-not-run-while-files-are-extracted",
			"record/restored-sandboxes-are-watched-from-the-start", "record/copies-and-replaced-sandboxes-are-watched",
			"record/continues-with-zombies", "record/replaced-sandboxes-continue-the-same-file", "cover/volumes-are-no-part-of-a-state",
		}, nil},
		"no volumes": {func(i *engine.Info, _ *Config) { i.Volumes = false }, []string{
			"cover/volumes-are-shared-with-the-host", "cover/volumes-are-bounded-by-their-file-system", "cover/volumes-are-no-part-of-a-state",
		}, nil},
		"no late workspace": {func(i *engine.Info, _ *Config) { i.TakesWorkspace = false }, []string{"workspace/"}, nil},
		"no proxy":          {func(i *engine.Info, _ *Config) { i.Egress = i.Egress[:2] }, []string{"proxy/"}, nil},
		"no packets": {func(i *engine.Info, _ *Config) { i.Egress = []engine.EgressKind{engine.EgressNone, engine.EgressProxy} }, []string{
			"link/", "copies/have-their-own-links", "copies/links-are-not-restored-with-the-memory", "copies/a-link-is-replaced-with-its-sandbox", "prestarted/have-their-own-links",
		}, nil},
		"shows the host's memory": {func(i *engine.Info, _ *Config) { i.Shows = i.Shows[1:] }, []string{"limits/programs-see-the-memory-limit"}, nil},
		"no limit of memory": {func(i *engine.Info, _ *Config) { i.Enforces = i.Enforces[1:] }, []string{
			"limits/memory-ends-the-sandbox-with-a-reason", "state/a-copy-has-a-separate-memory-limit", "archive/large-files-do-not-end-the-sandbox",
		}, nil},
		"no groups":                {func(_ *engine.Info, c *Config) { c.Groups = nil }, []string{"state/a-copy-has-a-separate-group"}, nil},
		"no forbidden commands":    {func(_ *engine.Info, c *Config) { c.Forbidden = nil }, []string{"copies/only-the-guest-may-change-the-identity"}, nil},
		"root is that of the host": {func(i *engine.Info, _ *Config) { i.OwnRoot = false }, []string{"imageowners/"}, nil},
		"no view of the host":      {func(_ *engine.Info, c *Config) { c.Image = engine.Image{} }, []string{"imageowners/"}, nil},
		"a jail":                   {func(i *engine.Info, _ *Config) { i.Boundary = engine.SharedKernel }, []string{"namespaces/", "limits/closed-connections-are-forgotten"}, nil},
		"no boundary": {func(i *engine.Info, _ *Config) { i.Boundary = engine.NoBoundary }, []string{
			"exec/", "boundary/", "cover/", "owners/", "imageowners/", "namespaces/", "changes/", "link/", "proxy/", "memory/", "prestarted/", "workspace/",
		}, []string{"limits/", "state/", "archive/", "bound/", "copies/", "record/"}},
	} {
		got := skippedRules(c.change)
		for _, r := range rules() {
			in := func(list []string) bool { return slices.ContainsFunc(list, r.in) }
			if in(c.ignored) {
				continue
			}
			// The changed description has its own kernel, except that of a jail.
			if want := in(c.skipped) || r.in("shared-kernel/") && name != "a jail"; slices.Contains(got, r.name) != want {
				t.Errorf("%s: the rule %s is skipped: %t, want %t", name, r.name, !want, want)
			}
		}
	}
}

func TestConfigMistakesAreFound(t *testing.T) {
	info := openFake(t, t.TempDir()).Info()
	valid := fakeConfig(t)
	if mistakes := valid.mistakes(info); len(mistakes) > 0 {
		t.Fatalf("control: the valid configuration has the mistakes %q", mistakes)
	}
	for want, change := range map[string]func(c *Config){
		"has no Residue":            func(c *Config) { c.Residue = nil },
		`"none/at-all" does not`:    func(c *Config) { c.Waive = map[string]string{"none/at-all": "x"} },
		"waived without a reason":   func(c *Config) { c.Waive = map[string]string{"lifecycle/create-is-ready": ""} },
		"waived and would not run":  func(c *Config) { c.Waive = map[string]string{"link/there-is-no-ipv6": "x"} },
		`there is no rule "nothing`: func(c *Config) { c.Only = []string{"nothing/"} },
	} {
		c := *valid
		change(&c)
		if mistakes := c.mistakes(info); len(mistakes) != 1 || !strings.Contains(mistakes[0], want) {
			t.Errorf("found the mistakes %q, want one with %q", mistakes, want)
		}
	}
}

// A waiver is allowed only for a rule that fails.
func TestUnneededWaiversFail(t *testing.T) {
	const name = "lifecycle/list-has-every-sandbox"
	r := rules()[slices.IndexFunc(rules(), func(r rule) bool { return r.name == name })]
	c := fakeConfig(t)
	if result := record(t, failTimeout, func(t testing.TB) { c.check(t, r) }); !result.passed() {
		t.Errorf("control: the rule fails: %s", result.text())
	}
	c.Waive = map[string]string{name: "for a test"}
	if result := record(t, failTimeout, func(t testing.TB) { c.check(t, r) }); result.passed() || !strings.Contains(result.text(), "not needed") {
		t.Errorf("the waiver of a rule that passes is accepted: %s", result.text())
	}
	c.Open = func(t testing.TB, dir string) engine.Engine { return listsNoSandbox{correct{openFake(t, dir)}} }
	if result := record(t, failTimeout, func(t testing.TB) { c.check(t, r) }); !result.passed() {
		t.Errorf("the waiver of a rule that fails is refused: %s", result.text())
	}
}

// The declarations of these engines differ from their methods.
type (
	hidesFreezer       struct{ correct }
	withoutMethods     struct{ engine.Engine }
	hasUnknownBoundary struct{ correct }
)

func (e hidesFreezer) Info() engine.Info {
	i := e.correct.Info()
	i.Capabilities = slices.DeleteFunc(i.Capabilities, func(c engine.Capability) bool { return c == engine.CanFreeze })
	return i
}

func TestUndeclaredFindsDifferences(t *testing.T) {
	e := openFake(t, t.TempDir())
	if differences := undeclared(e); len(differences) > 0 {
		t.Errorf("control: the fake engine has the differences %q", differences)
	}
	if differences := undeclared(hidesFreezer{correct{e}}); len(differences) != 1 || !strings.Contains(differences[0], "implements the capability freezer and does not declare it") {
		t.Errorf("an engine with an undeclared freezer: found %q", differences)
	}
	differences := undeclared(withoutMethods{e})
	if len(differences) != len(e.Info().Capabilities) || !strings.Contains(differences[0], "does not implement it") {
		t.Errorf("an engine that declares missing capabilities: found %q", differences)
	}
	if differences := undeclared(hasUnknownBoundary{correct{e}}); len(differences) != 1 {
		t.Errorf("an engine with an unknown boundary: found %q", differences)
	}
}

func (e hasUnknownBoundary) Info() engine.Info {
	i := e.correct.Info()
	i.Boundary = "own-kernal"
	return i
}

// The fake engine has no boundary, and still runs most of the contract.
func TestFakeRunsRulesWithoutPrograms(t *testing.T) {
	e := openFake(t, t.TempDir())
	run, _ := fakeConfig(t).plan(e.Info())
	groups := map[string]int{}
	for _, r := range run {
		group, _, _ := strings.Cut(r.name, "/")
		groups[group]++
	}
	for _, group := range []string{"lifecycle", "restart", "state", "archive", "freeze", "copies", "record", "limits", "leaks"} {
		if groups[group] == 0 {
			t.Errorf("no rule of %s/ runs on the fake: %v", group, slices.Sorted(maps.Keys(groups)))
		}
	}
	t.Logf("%d of %d rules: %v", len(run), len(rules()), groups)
}

// The page about writing an engine names each group of rules and each capability.
func TestRulesAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/internals/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		group, _, _ := strings.Cut(r.name, "/")
		if !strings.Contains(string(data), "`"+group+"/`") {
			t.Errorf("docs/internals/engines.md does not name `%s/`", group)
		}
		for _, c := range r.needs().can {
			if !strings.Contains(string(data), "`"+string(c)+"`") {
				t.Errorf("docs/internals/engines.md does not name the capability `%s`", c)
			}
		}
	}
}
