package enginetest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// The rules that run depend only on what an engine declares.
func TestRulesRunExactlyWhenDeclared(t *testing.T) {
	all := []engine.Capability{engine.CanMeasure, engine.CanObserve, engine.CanFreeze, engine.CanCheckpoint, engine.CanBind, engine.CanArchive, engine.CanWarm}
	every := []engine.Limit{engine.LimitMemory, engine.LimitCPU, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm}
	whole := engine.Info{
		Boundary: engine.OwnKernel, Capabilities: all, Enforces: every, Shows: every,
		Images: []engine.ImageKind{engine.ImageHostView}, Egress: []engine.EgressKind{engine.EgressNone, engine.EgressPackets},
	}
	whole.OwnRoot, whole.Volumes = true, true
	full := Config{Image: engine.ViewOf("/view", "/guest"), Groups: func(testing.TB, string) map[string][]string { return nil }, Forbidden: []string{"false"}}
	without := func(change func(i *engine.Info, c *Config)) []string {
		i, c := whole, full
		i.Capabilities, i.Enforces, i.Shows = slices.Clone(all), slices.Clone(every), slices.Clone(every)
		change(&i, &c)
		run, left := c.plan(i)
		if len(run)+len(left) != len(rules()) {
			t.Errorf("%d rules run and %d do not, of %d", len(run), len(left), len(rules()))
		}
		var names []string
		for _, why := range left {
			name, _, _ := strings.Cut(why, " ")
			names = append(names, name)
		}
		return names
	}
	less := func(c engine.Capability) func(*engine.Info, *Config) {
		return func(i *engine.Info, _ *Config) {
			i.Capabilities = slices.DeleteFunc(i.Capabilities, func(one engine.Capability) bool { return one == c })
		}
	}
	for name, c := range map[string]struct {
		change func(i *engine.Info, c *Config)
		// run lists rules and groups that do not run. All others run, except those in but.
		left []string
		but  []string
	}{
		"everything":  {func(*engine.Info, *Config) {}, nil, nil},
		"no meter":    {less(engine.CanMeasure), []string{"limits/usage-grows", "limits/cpu-is-bounded"}, nil},
		"no observer": {less(engine.CanObserve), []string{"record/", "prestarted/are-watched-when-used"}, nil},
		"no freezer":  {less(engine.CanFreeze), []string{"freeze/"}, nil},
		"no archiver": {less(engine.CanArchive), []string{"archive/", "freeze/a-frozen-sandbox-is-not-archived"}, nil},
		"no warmer":   {less(engine.CanWarm), []string{"prestarted/"}, nil},
		"no binder":   {less(engine.CanBind), []string{"bound/"}, nil},
		"no checkpointer": {less(engine.CanCheckpoint), []string{
			"state/", "memory/", "copies/", "prestarted/", "bound/", "benchmarks/", "owners/hold-in-a-copy", "imageowners/hold-in-a-copy", "freeze/a-frozen-sandbox-is-not-saved",
			"archive/nothing-runs-while-files-are-extracted", "archive/busy-programs-do-not-run-while-files-are-extracted",
			"record/restored-sandboxes-are-watched-from-the-start", "record/copies-and-replaced-sandboxes-are-watched",
			"record/continues-with-zombies", "record/replaced-sandboxes-continue-the-same-file", "cover/volumes-are-no-part-of-a-state",
		}, nil},
		"no volumes": {func(i *engine.Info, _ *Config) { i.Volumes = false }, []string{
			"cover/volumes-are-shared-with-the-host", "cover/volumes-are-no-part-of-a-state",
		}, nil},
		"no packets": {func(i *engine.Info, _ *Config) { i.Egress = i.Egress[:1] }, []string{
			"link/", "copies/have-their-own-links", "copies/links-are-not-restored-with-the-memory", "copies/a-link-is-replaced-with-its-sandbox", "prestarted/have-their-own-links",
		}, nil},
		"shows the host's memory": {func(i *engine.Info, _ *Config) { i.Shows = i.Shows[1:] }, []string{"limits/programs-see-the-memory-limit"}, nil},
		"no limit of memory": {func(i *engine.Info, _ *Config) { i.Enforces = i.Enforces[1:] }, []string{
			"limits/memory-ends-the-sandbox-with-a-reason", "state/a-copys-memory-limit-is-its-own", "archive/large-files-do-not-end-the-sandbox",
		}, nil},
		"no groups":            {func(_ *engine.Info, c *Config) { c.Groups = nil }, []string{"state/a-copy-has-a-group-of-its-own"}, nil},
		"forbids no line":      {func(_ *engine.Info, c *Config) { c.Forbidden = nil }, []string{"copies/only-the-guest-may-change-the-identity"}, nil},
		"a root of the host's": {func(i *engine.Info, _ *Config) { i.OwnRoot = false }, []string{"imageowners/"}, nil},
		"no view of the host":  {func(_ *engine.Info, c *Config) { c.Image = engine.Image{} }, []string{"imageowners/"}, nil},
		"a jail":               {func(i *engine.Info, _ *Config) { i.Boundary = engine.SharedKernel }, []string{"namespaces/", "limits/closed-connections-are-forgotten"}, nil},
		"no boundary": {func(i *engine.Info, _ *Config) { i.Boundary = engine.NoBoundary }, []string{
			"exec/", "boundary/", "cover/", "owners/", "imageowners/", "namespaces/", "changes/", "link/", "memory/", "prestarted/",
		}, []string{"limits/", "state/", "archive/", "bound/", "copies/", "record/"}},
	} {
		got := without(c.change)
		for _, r := range rules() {
			in := func(list []string) bool { return slices.ContainsFunc(list, r.in) }
			if in(c.but) {
				continue
			}
			// An engine that declares everything has its own kernel.
			if want := in(c.left) || r.in("shared-kernel/") && name != "a jail"; slices.Contains(got, r.name) != want {
				t.Errorf("%s: %s is left out: %t, want %t", name, r.name, !want, want)
			}
		}
	}
}

func TestMistakesOfAConfigurationAreFound(t *testing.T) {
	info := openFake(t, t.TempDir()).Info()
	good := sound(t)
	if wrong := good.mistakes(info); len(wrong) > 0 {
		t.Fatalf("control: %q", wrong)
	}
	for want, change := range map[string]func(c *Config){
		"has no Residue":            func(c *Config) { c.Residue = nil },
		`"none/at-all" does not`:    func(c *Config) { c.Waive = map[string]string{"none/at-all": "x"} },
		"waived without a reason":   func(c *Config) { c.Waive = map[string]string{"lifecycle/create-is-ready": ""} },
		"waived and would not run":  func(c *Config) { c.Waive = map[string]string{"link/there-is-no-ipv6": "x"} },
		`there is no rule "nothing`: func(c *Config) { c.Only = []string{"nothing/"} },
	} {
		c := *good
		change(&c)
		if wrong := c.mistakes(info); len(wrong) != 1 || !strings.Contains(wrong[0], want) {
			t.Errorf("%s: found %q", want, wrong)
		}
	}
}

// A waiver is allowed only for a rule that fails.
func TestUnneededWaiversFail(t *testing.T) {
	const name = "lifecycle/list-has-every-sandbox"
	r := rules()[slices.IndexFunc(rules(), func(r rule) bool { return r.name == name })]
	c := sound(t)
	if result := record(t, soon, func(t testing.TB) { c.check(t, r) }); !result.passed() {
		t.Errorf("control: %s", result.text())
	}
	c.Waive = map[string]string{name: "for a test"}
	if result := record(t, soon, func(t testing.TB) { c.check(t, r) }); result.passed() || !strings.Contains(result.text(), "not needed") {
		t.Errorf("an unneeded waiver: %s", result.text())
	}
	c.Open = func(t testing.TB, dir string) engine.Engine { return listsNothing{like{openFake(t, dir)}} }
	if result := record(t, soon, func(t testing.TB) { c.check(t, r) }); !result.passed() {
		t.Errorf("a needed waiver: %s", result.text())
	}
}

// hides and claims are engines whose declaration differs from their methods.
type (
	hides  struct{ like }
	claims struct{ engine.Engine }
)

func (e hides) Info() engine.Info {
	i := e.like.Info()
	i.Capabilities = slices.DeleteFunc(i.Capabilities, func(c engine.Capability) bool { return c == engine.CanFreeze })
	return i
}

func TestDeclarationsThatDifferAreFound(t *testing.T) {
	e := openFake(t, t.TempDir())
	if wrong := undeclared(e); len(wrong) > 0 {
		t.Errorf("control: %q", wrong)
	}
	if wrong := undeclared(hides{like{e}}); len(wrong) != 1 || !strings.Contains(wrong[0], "implements the capability freezer and does not declare it") {
		t.Errorf("one that hides what it implements: %q", wrong)
	}
	wrong := undeclared(claims{e})
	if len(wrong) != len(e.Info().Capabilities) || !strings.Contains(wrong[0], "does not implement it") {
		t.Errorf("one that claims what it does not implement: %q", wrong)
	}
	if wrong := undeclared(nameless{like{e}}); len(wrong) != 1 {
		t.Errorf("one without a boundary of its own: %q", wrong)
	}
}

type nameless struct{ like }

func (e nameless) Info() engine.Info {
	i := e.like.Info()
	i.Boundary = "own-kernal"
	return i
}

// Without a boundary, the fake still runs most of the contract.
func TestTheFakeRunsWhatNeedsNoPrograms(t *testing.T) {
	e := openFake(t, t.TempDir())
	run, _ := sound(t).plan(e.Info())
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
