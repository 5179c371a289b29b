package engine_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
)

// newRegistry returns a registry of engines, each given as name:boundary.
func newRegistry(t *testing.T, defaultName string, list ...string) *engine.Registry {
	t.Helper()
	var engines []engine.Engine
	for _, entry := range list {
		name, boundary, _ := strings.Cut(entry, ":")
		e, err := fake.New(fake.Options{Dir: t.TempDir(), Name: name, Boundary: engine.Boundary(boundary)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		engines = append(engines, e)
	}
	r, err := engine.NewRegistry(defaultName, engines...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	noBoundary, shared, wasm, user, own = engine.NoBoundary, engine.SharedKernel, engine.WasmRuntime, engine.UserspaceKernel, engine.OwnKernel
)

func TestBoundariesAreOrdered(t *testing.T) {
	order := []engine.Boundary{noBoundary, shared, wasm, user, own}
	for i, b := range order {
		for j, least := range order {
			if got := b.AtLeast(least); got != (i >= j) {
				t.Errorf("%s.AtLeast(%s) = %t, want the opposite", b, least, got)
			}
		}
		if !b.AtLeast("") {
			t.Errorf("%s is not enough for no minimum", b)
		}
		if b.AtLeast("own-kernal") {
			t.Errorf("%s is enough for a minimum that does not exist", b)
		}
		if engine.Boundary("own-kernal").AtLeast(b) {
			t.Errorf("a boundary that does not exist is at least %s", b)
		}
	}
}

func TestChooseByBoundary(t *testing.T) {
	all := []string{"a:none", "v:own-kernel", "u:userspace-kernel", "j:shared-kernel", "k:shared-kernel"}
	for name, c := range map[string]struct {
		engines     []string
		defaultName string
		choice      engine.Choice
		want        string
		code        string
		hint        string
	}{
		"the default without a minimum":            {all, "", engine.Choice{}, "a", "", ""},
		"the default is enough":                    {all, "u", engine.Choice{Least: shared}, "u", "", ""},
		"the default is just enough":               {all, "u", engine.Choice{Least: user}, "u", "", ""},
		"the weakest that suits, not the default":  {all, "", engine.Choice{Least: shared}, "j", "", ""},
		"only one is enough":                       {all, "u", engine.Choice{Least: own}, "v", "", ""},
		"none is enough":                           {all[2:], "u", engine.Choice{Least: own}, "", engine.CodeTooWeak, "no engine here suits"},
		"named and enough":                         {all, "a", engine.Choice{Name: "v", Least: user}, "v", "", ""},
		"named and not the first":                  {all, "a", engine.Choice{Name: "k", Least: shared}, "k", "", ""},
		"named and too weak":                       {all, "u", engine.Choice{Name: "j", Least: user}, "", engine.CodeTooWeak, "--engine u"},
		"named and too weak, and none is enough":   {all[3:], "j", engine.Choice{Name: "j", Least: user}, "", engine.CodeTooWeak, "no engine here suits"},
		"named and unknown":                        {all, "", engine.Choice{Name: "x"}, "", engine.CodeUnknown, "a, v, u, j, k"},
		"no boundary, allowed for tests":           {all, "", engine.Choice{Least: own, AnyBoundary: true}, "a", "", ""},
		"a weak boundary is not allowed for tests": {all, "j", engine.Choice{Name: "j", Least: user, AnyBoundary: true}, "", engine.CodeTooWeak, ""},
		"the request wants more than the policy":   {all, "j", engine.Choice{Least: shared, Asked: user}, "u", "", ""},
		"the policy wants more than the request":   {all, "j", engine.Choice{Least: own, Asked: user}, "v", "", ""},
		"named and too weak for the request":       {all, "u", engine.Choice{Name: "j", Least: shared, Asked: user}, "", engine.CodeTooWeak, "--engine u"},
		"an unknown minimum":                       {all, "v", engine.Choice{Least: "own-kernal"}, "", engine.CodeTooWeak, ""},
		"named with an unknown minimum":            {all, "v", engine.Choice{Name: "v", Least: "own-kernal"}, "", engine.CodeTooWeak, ""},
	} {
		e, err := newRegistry(t, c.defaultName, c.engines...).Choose(c.choice)
		got, code := "", ""
		if err == nil {
			got = e.Info().Name
		} else {
			code = fault.CodeOf(err)
		}
		if got != c.want || code != c.code || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%s: got the engine %q, %v (%s); want %q and the code %q", name, got, err, fault.HintOf(err), c.want, c.code)
		}
		if c.code == engine.CodeTooWeak && c.choice.Name != "" && !strings.Contains(err.Error(), "the engine "+c.choice.Name) {
			t.Errorf("%s: the error does not name the engine: %v", name, err)
		}
	}
}

func TestWhyNotDefaultNamesReason(t *testing.T) {
	r := newRegistry(t, "j", "u:userspace-kernel", "j:shared-kernel")
	for name, c := range map[string]struct {
		choice engine.Choice
		want   string
	}{
		"the default suits":     {engine.Choice{}, ""},
		"named":                 {engine.Choice{Name: "u", Least: user}, ""},
		"the policy wants more": {engine.Choice{Least: user}, "runs on the engine u, because the policy wants a boundary of at least userspace-kernel, and the engine j has shared-kernel"},
	} {
		e, err := r.Choose(c.choice)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.WhyNotDefault(c.choice, e); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestRegistryNamesAndFaults(t *testing.T) {
	r := newRegistry(t, "b", "a:none", "b:none")
	r.All()[0] = nil
	if got := strings.Join(r.Names(), " "); got != "a b" || r.Default().Info().Name != "b" || !r.Has("a") || r.Has("c") || r.Has("") {
		t.Errorf("the registry has %s and the default %s", got, r.Default().Info().Name)
	}
	if _, err := r.Of("gone"); fault.CodeOf(err) != engine.CodeUnavailable || fault.KindOf(err) != fault.Unsupported || !strings.Contains(fault.HintOf(err), "a, b") {
		t.Errorf("an unknown engine in a row: %v", err)
	}
	a, err := r.Of("a")
	if err != nil || a.Info().Name != "a" {
		t.Errorf("the engine of a row: %v", err)
	}
	if _, err := engine.NewRegistry("x", a); fault.CodeOf(err) != engine.CodeUnknown {
		t.Errorf("an unknown default: %v", err)
	}
	if _, err := engine.NewRegistry("", a, a); err == nil {
		t.Error("two engines have one name")
	}
	if _, err := engine.NewRegistry(""); err == nil {
		t.Error("a registry has no engine")
	}
}

// Choose respects every requirement, and its error gives the reason why each engine does not suit.
func TestChooseByRequirements(t *testing.T) {
	hosts, save := []engine.ImageKind{engine.ImageHostView}, []engine.Capability{engine.CanCheckpoint}
	disk := []engine.Limit{engine.LimitMemory, engine.LimitDisk}
	r, err := engine.NewRegistry("weak",
		infoOnly{info: engine.Info{Name: "weak", Boundary: shared, Images: []engine.ImageKind{engine.ImageOCI}}},
		infoOnly{info: engine.Info{Name: "middle", Boundary: user, Images: hosts, Enforces: disk[:1], Capabilities: save, Containers: true}},
		infoOnly{info: engine.Info{Name: "strong", Boundary: own, Images: hosts, Enforces: disk, Capabilities: save}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		choice           engine.Choice
		want, code, hint string
		texts            []string // parts of the error
	}{
		"no requirement":           {engine.Choice{}, "weak", "", "", nil},
		"an image of the default":  {engine.Choice{Images: []engine.ImageKind{engine.ImageOCI}}, "weak", "", "", nil},
		"an image of others":       {engine.Choice{Images: hosts}, "middle", "", "", nil},
		"an image of none":         {engine.Choice{Images: []engine.ImageKind{engine.ImageDisk}}, "", engine.CodeImage, "another template", []string{"engine weak cannot", "engine middle cannot", "engine strong cannot"}},
		"a limit":                  {engine.Choice{Images: hosts, Limits: disk}, "strong", "", "", nil},
		"containers inside":        {engine.Choice{Containers: true}, "middle", "", "", nil},
		"containers and a machine": {engine.Choice{Containers: true, Least: own}, "", engine.CodeTooWeak, "", []string{"engine strong cannot run containers"}},
		"a capability":             {engine.Choice{Needs: save}, "middle", "", "", nil},
		"a capability and a level": {engine.Choice{Needs: save, Least: own}, "strong", "", "", nil},
		"different reasons": {
			engine.Choice{Limits: []engine.Limit{engine.LimitInodes}, Least: user, Images: hosts}, "", engine.CodeTooWeak, "lower isolation.at_least",
			[]string{"engine weak has shared-kernel", "engine middle does not enforce a limit of inodes", "engine strong does not"},
		},
		"named without the image":      {engine.Choice{Name: "weak", Images: hosts}, "", engine.CodeImage, "use --engine middle, or name an image", []string{"engine weak"}},
		"named without containers":     {engine.Choice{Name: "strong", Containers: true}, "", engine.CodeContainers, "use --engine middle, or leave containers out", []string{"engine strong"}},
		"named without the limit":      {engine.Choice{Name: "middle", Limits: disk}, "", engine.CodeLimit, "use --engine strong, or leave this limit out", []string{"engine middle"}},
		"named without the capability": {engine.Choice{Name: "weak", Needs: save}, "", engine.CodeCapability, "use --engine middle", []string{"engine weak has no checkpointer"}},
	} {
		got := ""
		e, err := r.Choose(c.choice)
		if err == nil {
			got = e.Info().Name
		}
		if got != c.want || fault.CodeOf(err) != c.code || !strings.Contains(fault.HintOf(err), c.hint) || err != nil && fault.KindOf(err) != fault.Unsupported {
			t.Errorf("%s: got the engine %q, %v (%s); want %q and the code %q", name, got, err, fault.HintOf(err), c.want, c.code)
		}
		for _, text := range c.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error %v does not contain %q", name, err, text)
			}
		}
	}
}

// An engine that uses a service with other users is named in hints, but chosen only on request.
func TestEngineOnRequestIsChosenOnlyByName(t *testing.T) {
	hosts, both := []engine.ImageKind{engine.ImageHostView}, []engine.ImageKind{engine.ImageHostView, engine.ImageOCI}
	kernel := infoOnly{info: engine.Info{Name: "kernel", Boundary: user, Images: hosts}}
	service := infoOnly{info: engine.Info{Name: "service", Boundary: shared, Images: both[1:], Enforces: []engine.Limit{engine.LimitShm}, OnRequest: true}}
	r, err := engine.NewRegistry("", kernel, service)
	if err != nil {
		t.Fatal(err)
	}
	shm := engine.Choice{Images: both, Limits: []engine.Limit{engine.LimitShm}}
	if e, err := r.Choose(shm); err == nil || fault.CodeOf(err) != engine.CodeLimit || !strings.Contains(fault.HintOf(err), "--engine service") {
		t.Errorf("not named: %v, %v (%s)", e, err, fault.HintOf(err))
	}
	if e, err := r.Choose(engine.Choice{Name: "service", Images: both}); err != nil || e.Info().Name != "service" {
		t.Errorf("named: %v, %v", e, err)
	}
	if r, err = engine.NewRegistry("service", kernel, service); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Choose(shm); err != nil || e.Info().Name != "service" {
		t.Errorf("as the default: %v, %v", e, err)
	}
}

// infoOnly is an engine that implements only Info.
type infoOnly struct {
	engine.Engine
	info engine.Info
}

func (e infoOnly) Info() engine.Info { return e.info }
