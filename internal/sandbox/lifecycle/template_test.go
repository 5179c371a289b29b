package lifecycle_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/sandbox/sandboxtest"
)

// testTemplates has one more template, "made", which a test can change.
type testTemplates struct {
	templates
	template *atomic.Pointer[sandbox.Template]
}

func newTestTemplates(t sandbox.Template) testTemplates {
	m := testTemplates{template: &atomic.Pointer[sandbox.Template]{}}
	m.set(func(to *sandbox.Template) { *to = t })
	return m
}

func (m testTemplates) set(change func(*sandbox.Template)) {
	var t sandbox.Template
	if have := m.template.Load(); have != nil {
		t = *have
	}
	change(&t)
	t.ID, t.Name, t.Image = "made0000000000000000", "made", engine.ViewOf("/", "")
	m.template.Store(&t)
}

func (m testTemplates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name == "made" || ref.Name == "made0000000000000000" {
		return *m.template.Load(), nil
	}
	return m.templates.Resolve(ctx, ref)
}

func (m testTemplates) option(d *lifecycle.Deps) { d.Templates = m }

func withTestTemplate(req *sandbox.CreateRequest) { req.Template = "made" }

// realGuest runs the programs of sandboxes on this host.
func realGuest(t *testing.T) option {
	dir := t.TempDir()
	return func(d *lifecycle.Deps) {
		e, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Enforces: enforced, Shows: enforced, Guest: func(spec engine.Spec) (map[int]http.Handler, func(), error) {
			return sandboxtest.Guest(spec, dir, slog.New(slog.DiscardHandler))
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		d.Engines = fake.Registry(e)
	}
}

// A template's program runs in each instance that boots, and in none that continues from memory.
func TestTemplateProgramRunsAtBoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "starts")
	sh := func(text string) []string { return []string{"/bin/sh", "-c", strings.ReplaceAll(text, "FILE", file)} }
	// The probe takes away what each start leaves after its line, so the line is there when it succeeds.
	m := newTestTemplates(sandbox.Template{Start: &sandbox.Start{Command: sh("echo started >> FILE; : > FILE.ready; exec sleep 600"), Ready: sh("rm FILE.ready")}})
	r := newRig(t, realGuest(t), m.option)
	wantStarts := func(want int) {
		t.Helper()
		text, err := os.ReadFile(file)
		if n := strings.Count(string(text), "started"); err != nil || n != want {
			t.Errorf("started %d times, want %d; %v", n, want, err)
		}
	}
	sb := r.create(alice, withTestTemplate)
	wantStarts(1)
	n := r.snapshot(alice, sb.ID, "")
	r.create(alice, func(req *sandbox.CreateRequest) { req.Template = n.ID })
	if _, err := r.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 1}); err != nil {
		t.Fatal(err)
	}
	wantStarts(1)
	if _, err := r.Reset(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	wantStarts(2)
	r.create(alice)
	wantStarts(2)

	for want, start := range map[string]sandbox.Start{
		"exit code 3 before it was ready; it printed: went wrong": {Command: sh("echo went wrong; exit 3"), Ready: sh("false")},
		"not ready within 300ms":                                  {Command: sh("exec sleep 600"), Ready: sh("false"), Timeout: 300 * time.Millisecond},
	} {
		m.set(func(to *sandbox.Template) { to.Start = &start })
		before, err := r.List(t.Context(), local, sandbox.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "made"})
		if fault.CodeOf(err) != "template_not_ready" || !strings.Contains(fault.PublicText(err), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
		if after, err := r.List(t.Context(), local, sandbox.Filter{}); err != nil || len(after.Sandboxes) != len(before.Sandboxes) {
			t.Errorf("a failure leaves %d sandboxes of %d, %v", len(after.Sandboxes), len(before.Sandboxes), err)
		}
	}
	// A program that puts itself into the background has not failed.
	m.set(func(to *sandbox.Template) {
		to.Start = &sandbox.Start{Command: sh("(sleep 0.2; touch FILE.late) > /dev/null 2>&1 &"), Ready: sh("test -e FILE.late")}
	})
	r.create(alice, withTestTemplate)
}

// P56: the memory of a template belongs to its sandboxes alone.
func TestTemplateMemory(t *testing.T) {
	m := newTestTemplates(sandbox.Template{})
	r := newRig(t, m.option)
	ctx := t.Context()
	first := r.create(local, withTestTemplate)
	states := r.TemplateStates()
	memory, err := states.Save(ctx, local, first.ID, "made:version-1")
	if err != nil {
		t.Fatal(err)
	}
	m.set(func(to *sandbox.Template) { to.Memory = memory })
	sb := r.create(alice, withTestTemplate)
	if c := r.booted(); c.Renew != guest.Copied || sb.Origin != memory || sb.Template != "made" {
		t.Errorf("booted as %q from %q of %q", c.Renew, sb.Origin, sb.Template)
	}
	// A request that differs from the memory boots.
	for name, change := range map[string]func(*sandbox.CreateRequest){
		"a workspace": func(req *sandbox.CreateRequest) { req.Workspace = t.TempDir() },
		"a limit":     func(req *sandbox.CreateRequest) { req.Limits.PIDs = 77 },
	} {
		if other := r.create(local, withTestTemplate, change); other.Origin != "" || r.booted().Renew != "" {
			t.Errorf("with %s it continues from %q", name, other.Origin)
		}
	}
	// No caller sees the memory.
	if page, err := r.Snapshots(ctx, local, sandbox.SnapshotFilter{}); err != nil || len(page.Snapshots) != 0 {
		t.Errorf("listed %v, %v", page, err)
	}
	if _, err := r.FindSnapshot(ctx, local, memory); fault.CodeOf(err) != "snapshot_not_found" {
		t.Errorf("found: %v", err)
	}
	wantKind(t, r.RemoveSnapshot(ctx, local, memory), fault.NotFound, "snapshot_not_found")
	_, err = r.Create(ctx, local, sandbox.CreateRequest{Template: memory})
	wantKind(t, err, fault.NotFound, "template_not_found")
	// A snapshot of a caller is not swept, and cannot be removed as memory.
	aliceSnapshot := r.snapshot(alice, sb.ID, "own")
	if err := states.Sweep(ctx, func(version, id string) bool { return version == "made:version-1" && id == memory }); err != nil {
		t.Fatal(err)
	}
	if again := r.create(alice, withTestTemplate); again.Origin != memory {
		t.Errorf("after the sweep it starts from %q", again.Origin)
	}
	if err := states.Remove(ctx, aliceSnapshot.ID); err == nil {
		t.Error("a caller's snapshot was removed")
	}
	if err := states.Sweep(ctx, func(string, string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if again := r.create(alice, withTestTemplate); again.Origin != "" {
		t.Errorf("without memory it starts from %q", again.Origin)
	}
	if _, err := r.FindSnapshot(ctx, alice, aliceSnapshot.ID); err != nil {
		t.Errorf("a caller's snapshot was swept: %v", err)
	}
}

// A warm sandbox of a template continues from the template's memory.
func TestWarmPoolRestoresTemplateMemory(t *testing.T) {
	m := newTestTemplates(sandbox.Template{})
	var store *fakeImages
	p := newPoolRig(t, m.option, func(d *lifecycle.Deps) { store, _ = d.Images.(*fakeImages) })
	if store == nil {
		t.Fatal("the rig stores no images")
	}
	first := p.create(local, withTestTemplate)
	memory, err := p.TemplateStates().Save(t.Context(), local, first.ID, "made:version-1")
	if err != nil {
		t.Fatal(err)
	}
	m.set(func(to *sandbox.Template) { to.Memory = memory })
	request := opened
	request.Template = "made"
	p.start(request)
	id := p.rows()[0].ID
	boot, _, _ := p.configs(id)
	if boot.Renew != guest.Copied {
		t.Errorf("the warm sandbox has booted as %q", boot.Renew)
	}
	sb, err := p.Create(t.Context(), alice, request)
	if err != nil || sb.ID != id || sb.Origin != memory {
		t.Errorf("%s, want %s, from %q, %v", sb.ID, id, sb.Origin, err)
	}
	// A version without that memory is another kind.
	p.awaitWarm(1)
	m.set(func(to *sandbox.Template) { to.Memory = "" })
	ready := p.rows()[0].ID
	if sb, err = p.Create(t.Context(), alice, request); err != nil || sb.ID == ready || sb.Origin != "" {
		t.Errorf("sandbox of a version without memory: got %s from %q, %v", sb.ID, sb.Origin, err)
	}
}

// What a template sets applies where the request is silent, and a key's template is that key's.
func TestTemplateDefaults(t *testing.T) {
	m := newTestTemplates(sandbox.Template{Limits: sandbox.Limits{OutputBytes: 4000, Limits: engine.Limits{PIDs: 99}}})
	r := newRig(t, m.option)
	if sb := r.create(alice, withTestTemplate); sb.Limits.OutputBytes != 4000 || sb.Limits.PIDs != 99 {
		t.Errorf("limits: got %+v, want those of the template", sb.Limits)
	}
	if sb := r.create(alice, withTestTemplate, func(req *sandbox.CreateRequest) { req.Limits.PIDs = 98 }); sb.Limits.PIDs != 98 || sb.Limits.OutputBytes != 4000 {
		t.Errorf("limits: got %+v, want the requested PIDs and the template's output", sb.Limits)
	}
	m.set(func(to *sandbox.Template) { to.Access = &sandbox.Access{Net: sandbox.NetNone} })
	if sb := r.create(alice, withTestTemplate, func(req *sandbox.CreateRequest) { req.Access.Net = sandbox.NetOpen }); sb.Access.Linked() {
		t.Errorf("a request has widened %+v", sb.Access)
	}
	m.set(func(to *sandbox.Template) { to.Owner = "alice" })
	r.create(alice, withTestTemplate)
	r.create(local, withTestTemplate)
	_, err := r.Create(t.Context(), bob, sandbox.CreateRequest{Template: "made"})
	wantKind(t, err, fault.NotFound, "template_not_found")
	bound := accessWithHeader(t, "a-value-of-its-own")
	bound.Values = nil
	m.set(func(to *sandbox.Template) { to.Access = &bound })
	_, err = r.Create(t.Context(), local, sandbox.CreateRequest{Template: "made"})
	wantKind(t, err, fault.Denied, "template_secrets")
}

// imageTemplates has templates of an image that can be lost.
type imageTemplates struct {
	testTemplates
	lost *atomic.Bool
}

func (d imageTemplates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	t, err := d.testTemplates.Resolve(ctx, ref)
	t.ImageDigest = imageDigest
	return t, err
}

func (d imageTemplates) ResolveImage(context.Context, string, bool) (sandbox.Template, error) {
	return sandbox.Template{}, fault.New(fault.NotFound, "image_not_found", "no image")
}

func (d imageTemplates) ResolveDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	if digest != imageDigest || d.lost.Load() {
		return sandbox.Template{}, sandbox.ImageMissing(digest)
	}
	t, err := d.Resolve(ctx, sandbox.Reference{Name: "base", Tag: sandbox.DefaultTag})
	return t, err
}

func (imageTemplates) EngineImage(engine.FoundImage) sandbox.Template { return sandbox.Template{} }

var _ sandbox.ImageTemplates = imageTemplates{}

const imageDigest = "sha256:4a1b"

// P56: a snapshot starts from the image of its sandbox. If that image is missing, the error names
// it.
func TestSnapshotReportsMissingImage(t *testing.T) {
	d := imageTemplates{newTestTemplates(sandbox.Template{Env: map[string]string{"OF": "the version"}}), &atomic.Bool{}}
	r := newRig(t, func(deps *lifecycle.Deps) { deps.Templates = d })
	sb := r.create(alice, withTestTemplate)
	n, err := r.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	d.set(func(to *sandbox.Template) { to.Env = nil }) // the name leads to another version
	again := r.create(alice, func(req *sandbox.CreateRequest) { req.Template = n.ID })
	if c := r.booted(); c.Env["OF"] != "the version" || again.TemplateID != sb.TemplateID || again.ImageDigest != imageDigest {
		t.Errorf("it starts with %v from %s of %s", c.Env, again.ImageDigest, again.TemplateID)
	}
	d.lost.Store(true)
	_, err = r.Create(t.Context(), alice, sandbox.CreateRequest{Template: n.ID})
	if fault.CodeOf(err) != sandbox.CodeImageMissing || !strings.Contains(fault.HintOf(err), imageDigest) {
		t.Errorf("creation without the image: got error %v, hint %q", err, fault.HintOf(err))
	}
	if _, err := r.Reset(t.Context(), alice, sb.ID); fault.CodeOf(err) != sandbox.CodeImageMissing {
		t.Errorf("reset: %v", err)
	}
	if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Running {
		t.Errorf("after the refused reset it is %s, %v", got.State, err)
	}
}
