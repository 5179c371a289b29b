package rootfs

import (
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

var everyLimit = []engine.Limit{engine.LimitMemory, engine.LimitCPU, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm}

// limitedRow returns the row of a sandbox on an engine that claims all limits.
func limitedRow() sandbox.Row {
	r := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "a", Boundary: engine.SharedKernel, Enforced: everyLimit, Limits: sandbox.DefaultLimits}}
	r.Limits.MilliCPU = 1500
	r.Base.Knows = sandbox.GuestKnows
	return r
}

func TestOnlyShownLimitsAreCheckedInside(t *testing.T) {
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard"}})
	if err != nil {
		t.Fatal(err)
	}
	r := limitedRow()
	inside, checked := checks(r, p, Masks{}, engine.Info{Shows: everyLimit})
	if inside.MemoryBytes != r.Limits.MemoryBytes || inside.PIDs != r.Limits.PIDs || inside.DiskBytes != r.Limits.DiskBytes || inside.DiskInodes != r.Limits.DiskInodes {
		t.Errorf("all limits are shown inside, but the checks are %+v", inside)
	}
	if slices.ContainsFunc(checked, func(s string) bool { return strings.HasPrefix(s, "checked from outside") }) {
		t.Errorf("all limits are shown inside, but %q has checks from outside", checked)
	}
	inside, checked = checks(r, p, Masks{}, engine.Info{Shows: []engine.Limit{engine.LimitDisk}})
	if inside.MemoryBytes != 0 || inside.PIDs != 0 || inside.DiskInodes != 0 || inside.DiskBytes != r.Limits.DiskBytes {
		t.Errorf("only the disk limit is shown inside, but the checks are %+v", inside)
	}
	for _, want := range []string{"checked from outside: at most 1g of memory", "checked from outside: at most 512 of pids", "checked from outside: at most 1.5 of cpus"} {
		if !slices.Contains(checked, want) {
			t.Errorf("%q is not in %q", want, checked)
		}
	}
}

func TestCheckBoundsReadsHiddenLimits(t *testing.T) {
	for name, c := range map[string]struct {
		options fake.Options
		limits  func(*engine.Limits) // changes the limits of the instance
		code    string
	}{
		"enforced and not shown":          {fake.Options{Enforces: everyLimit}, nil, ""},
		"narrower than requested":         {fake.Options{Enforces: everyLimit}, func(l *engine.Limits) { l.PIDs-- }, ""},
		"whole processors":                {fake.Options{Enforces: everyLimit}, func(l *engine.Limits) { l.MilliCPU = 2000 }, ""},
		"a processor too many":            {fake.Options{Enforces: everyLimit}, func(l *engine.Limits) { l.MilliCPU = 2001 }, codeBounds},
		"wider than requested":            {fake.Options{Enforces: everyLimit}, func(l *engine.Limits) { l.MemoryBytes++ }, codeBounds},
		"wider, and shown":                {fake.Options{Enforces: everyLimit, Shows: everyLimit}, func(l *engine.Limits) { l.MemoryBytes++ }, ""},
		"neither enforced nor shown":      {fake.Options{Enforces: everyLimit, Ignores: []engine.Limit{engine.LimitShm}}, nil, codeBounds},
		"not enforced, and others shown":  {fake.Options{Enforces: everyLimit, Shows: everyLimit[1:], Ignores: everyLimit[:1]}, nil, codeBounds},
		"not enforced, and shown as well": {fake.Options{Enforces: everyLimit, Shows: everyLimit, Ignores: everyLimit}, nil, ""},
	} {
		r := limitedRow()
		c.options.Dir = t.TempDir()
		e, err := fake.New(c.options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		spec := engine.Spec{ID: r.ID, Limits: r.Limits.Limits, Boot: engine.Boot{Config: []byte(`{"control_token":"t"}`)}}
		if c.limits != nil {
			c.limits(&spec.Limits)
		}
		if err := e.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if err := CheckBounds(t.Context(), e, r); (err == nil) != (c.code == "") || err != nil && (fault.CodeOf(err) != c.code || fault.KindOf(err) != fault.Unsupported) {
			t.Errorf("%s: %v, want the code %q", name, err, c.code)
		}
		// An engine without a meter can only show its limits inside.
		if err := CheckBounds(t.Context(), struct{ engine.Engine }{e}, r); (err == nil) != (len(c.options.Shows) == len(everyLimit)) {
			t.Errorf("%s, on an engine without a meter: %v", name, err)
		}
	}
}

// TestFilesNeedOwnNetworkAndFiles checks that in an instance with the network or files of the host
// the guest binds no address and writes no file.
func TestFilesNeedOwnNetworkAndFiles(t *testing.T) {
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range []engine.Info{{}, {OwnNetwork: true}, {OwnFiles: true}, {OwnNetwork: true, OwnFiles: true}} {
		r := limitedRow()
		_, config := ComposeMasked(&r, sandbox.Template{}, p, info, Masks{}, false, "box")
		own := info.OwnNetwork && info.OwnFiles
		if config.Offline != own || (len(config.Files) > 0) != own || config.HostFiles == info.OwnFiles {
			t.Errorf("own network %t, own files %t: offline %t, %d files, files of the host %t",
				info.OwnNetwork, info.OwnFiles, config.Offline, len(config.Files), config.HostFiles)
		}
	}
}
