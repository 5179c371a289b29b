package catalog_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

var (
	local = sandbox.Principal{Local: true}
	alice = sandbox.Principal{KeyID: "alice"}
	bob   = sandbox.Principal{KeyID: "bob"}
)

// fakeSandboxes is a sandbox service without sandboxes. Its memory is a set of names.
type fakeSandboxes struct {
	fail    error
	note    string
	memory  map[string]string // version by memory
	created int
	cleaned []string
}

func (s *fakeSandboxes) Save(_ context.Context, _ sandbox.Principal, reference, version string) (string, string, error) {
	if s.fail != nil || s.note != "" {
		return "", s.note, s.fail
	}
	if !strings.Contains(reference, ":version-") {
		return "", "", errors.New("the reference names no version")
	}
	s.created++
	memory := "memory" + strings.Repeat("i", s.created)
	s.memory[memory] = version
	return memory, "", nil
}

func (s *fakeSandboxes) Drop(_ context.Context, memory string) error {
	delete(s.memory, memory)
	return nil
}

func (s *fakeSandboxes) Clean(_ context.Context, version string) error {
	s.cleaned = append(s.cleaned, version)
	return nil
}

func (s *fakeSandboxes) Sweep(_ context.Context, needed func(version, memory string) bool) error {
	for memory, version := range s.memory {
		if !needed(version, memory) {
			delete(s.memory, memory)
		}
	}
	return nil
}

// testCatalog is a catalog with fake sandboxes, an image library and a registry.
type testCatalog struct {
	*catalog.Catalog
	t         *testing.T
	host      string
	library   *library.Library
	sandboxes *fakeSandboxes
	entries   *audittest.Log
	all       *catalog.Templates
}

// noTemplates has no templates.
type noTemplates struct{}

func (noTemplates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	return sandbox.Template{}, sandbox.TemplateUnknown(ref)
}

func openLibrary(t *testing.T, dir, host string) *library.Library {
	t.Helper()
	l, err := library.Open(library.Options{Dir: filepath.Join(dir, "oci"), Guest: imagetest.Guest(t), Grace: -1, Registry: registry.Options{Rules: registry.Rules{Insecure: []string{host}}}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func openCatalog(t *testing.T) *testCatalog {
	t.Helper()
	dir, host := t.TempDir(), imagetest.Registry(t)
	r := &testCatalog{t: t, host: host, library: openLibrary(t, dir, host), sandboxes: &fakeSandboxes{memory: map[string]string{}}, entries: &audittest.Log{}}
	var err error
	if r.Catalog, err = catalog.Open(catalog.Options{Dir: filepath.Join(dir, "catalog"), Library: r.library}); err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(t.Context(), r.sandboxes, auditlog.New(r.entries, slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	r.all = r.FollowedBy(noTemplates{})
	return r
}

// publish gives an image with one file a name in the registry, and returns the name.
func (r *testCatalog) publish(name, text string) string {
	r.t.Helper()
	ref := r.host + "/" + name
	imagetest.Publish(r.t, ref, imagetest.Image(r.t, v1.Config{User: "app", WorkingDir: "/srv", Env: []string{"A=image", "B=image"}},
		imagetest.Layer(r.t, imagetest.File{Name: "etc/passwd", Content: "app:x:5:5::/:/bin/sh\n"}, imagetest.File{Name: "text", Content: text})))
	return ref
}

func (r *testCatalog) create(caller sandbox.Principal, name, image string, s catalog.Settings) catalog.Template {
	r.t.Helper()
	t, err := r.Create(r.t.Context(), caller, catalog.Request{Template: name, Image: image, Settings: s})
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *testCatalog) resolve(name string) (sandbox.Template, error) {
	r.t.Helper()
	ref, err := sandbox.ParseReference(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.all.Resolve(r.t.Context(), ref)
}

// digest returns the digest to which a name refers, or the code of the error.
func (r *testCatalog) digest(name string) string {
	t, err := r.resolve(name)
	if err != nil {
		return fault.CodeOf(err)
	}
	return t.ImageDigest
}

func TestVersionsAndTags(t *testing.T) {
	r := openCatalog(t)
	one := r.create(local, "org/app:1", r.publish("app:1", "one"), catalog.Settings{})
	two := r.create(local, "org/app:2", r.publish("app:2", "two"), catalog.Settings{})
	if one.ID != two.ID || len(two.Versions) != 2 {
		t.Fatalf("second Create: got template %+v, want the same one with two versions", two)
	}
	first, second := two.Versions[0].Digest, two.Versions[1].Digest
	for name, want := range map[string]string{
		"org/app": first, "org/app:1": first, "org/app:2": second, two.ID: first, two.ID + ":2": second,
		"org/app:version-2": second, "org/app:version-3": "template_tag_not_found", "org/app:3": "template_tag_not_found", "app": "template_not_found",
	} {
		if got := r.digest(name); got != want {
			t.Errorf("%s: got digest %s, want %s", name, got, want)
		}
	}
	if _, err := r.Tag(t.Context(), local, "org/app:2", []string{"default", "stable"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Alias(t.Context(), local, "org/app", []string{"site"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"org/app": second, "site:stable": second, "site:1": first} {
		if got := r.digest(name); got != want {
			t.Errorf("%s: got digest %s, want %s", name, got, want)
		}
	}
	for name, do := range map[string]func() error{
		"template_tag_invalid": func() error { _, err := r.Tag(t.Context(), local, "org/app", []string{"version-9"}); return err },
		"template_name_taken":  func() error { _, err := r.Alias(t.Context(), local, "org/app", []string{"base"}); return err },
		"template_name_invalid": func() error {
			_, err := r.Create(t.Context(), local, catalog.Request{Template: strings.Repeat("a", 20), Image: "x"})
			return err
		},
		"template_not_found": func() error { return r.Remove(t.Context(), local, "none", false) },
	} {
		if err := do(); fault.CodeOf(err) != name {
			t.Errorf("got error %v, want code %s", err, name)
		}
	}
	// A tag is removed together with a version that has no other tag.
	if err := r.Remove(t.Context(), local, "org/app:1", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(t.Context(), local, "site", false); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Inspect(local, "org/app"); err != nil || len(got.Versions) != 1 || len(got.Aliases) != 0 {
		t.Errorf("Inspect after the removals: got %+v, error %v, want one version and no alias", got, err)
	}
	if err := r.Remove(t.Context(), local, "org/app", false); err != nil {
		t.Fatal(err)
	}
	if all, err := r.List(local); err != nil || len(all) != 0 {
		t.Errorf("List after Remove: got %v, error %v, want none", all, err)
	}
}

// The settings of a version replace only the corresponding settings of its image.
func TestVersionSettings(t *testing.T) {
	r := openCatalog(t)
	access := sandbox.Access{Net: sandbox.NetDev}
	r.create(local, "app", r.publish("app:1", "x"), catalog.Settings{
		User: "root", Env: map[string]string{"B": "template", "C": "template"}, Limits: sandbox.Limits{OutputBytes: 5000}, Access: &access,
	})
	got, err := r.resolve("app")
	if err != nil || got.DefaultUser != "root" || got.DefaultDir != "/srv" || got.Env["A"] != "image" || got.Env["B"] != "template" || got.Env["C"] != "template" ||
		got.Limits.OutputBytes != 5000 || got.Access.Net != sandbox.NetDev || got.Name != "app" {
		t.Errorf("Resolve: got %+v, error %v, want the merged settings", got, err)
	}
	for want, s := range map[string]catalog.Settings{
		"template_access":  {Access: &sandbox.Access{Lists: &sandbox.Lists{}}},
		"template_invalid": {Start: &sandbox.Start{Ready: []string{"x"}}},
	} {
		if _, err := r.Create(t.Context(), local, catalog.Request{Template: "bad", Image: r.host + "/app:1", Settings: s}); fault.CodeOf(err) != want {
			t.Errorf("Create with settings %+v: error %v", s, err)
		}
	}
	for _, s := range []catalog.Settings{
		{Dir: "srv"}, {User: "a b"}, {Env: map[string]string{"A=B": ""}}, {Start: &sandbox.Start{Command: []string{""}}},
		{Start: &sandbox.Start{Command: []string{"x"}, Timeout: time.Hour}},
	} {
		if _, err := r.Create(t.Context(), local, catalog.Request{Template: "bad", Image: r.host + "/app:1", Settings: s}); fault.CodeOf(err) != "template_invalid" {
			t.Errorf("Create with settings %+v: error %v", s, err)
		}
	}
}

// P56: moving a name changes no version, and removing a name does not affect versions.
func TestVersionsKeepImages(t *testing.T) {
	r := openCatalog(t)
	name := r.publish("app:1", "one")
	created := r.create(local, "app", name, catalog.Settings{})
	r.publish("app:1", "two")
	if _, err := r.library.Pull(t.Context(), name, "", func(library.Progress) {}); err != nil {
		t.Fatal(err)
	}
	if got := r.digest("app"); got != created.Versions[0].Digest {
		t.Errorf("the name has moved the version to %s", got)
	}
	if _, err := r.library.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got := r.digest("app"); got != created.Versions[0].Digest {
		t.Errorf("without its name the version leads to %s", got)
	}
	// The template is removed with its last version.
	if err := r.Remove(t.Context(), local, "app", false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.library.ResolveDigest(t.Context(), created.Versions[0].Digest); fault.CodeOf(err) != sandbox.CodeImageMissing {
		t.Errorf("ResolveDigest after the last version: got %v, want a missing image", err)
	}
}

// The error for a version without its image names the image. The version works again once the image
// is back.
func TestMissingImageErrorNamesDigest(t *testing.T) {
	r := openCatalog(t)
	name := r.publish("app:1", "one")
	created := r.create(local, "app", name, catalog.Settings{})
	digest := created.Versions[0].Digest
	r.library.Pin(func() (map[v1.Hash]bool, error) { return map[v1.Hash]bool{}, nil }) // as if the image were missing
	if _, err := r.library.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	_, err := r.resolve("app")
	if fault.CodeOf(err) != sandbox.CodeImageMissing || !strings.Contains(fault.HintOf(err), digest) || !strings.Contains(fault.PublicText(err), "app") {
		t.Errorf("missing image: got error %v, hint %q", err, fault.HintOf(err))
	}
	if _, err := r.library.Pull(t.Context(), r.host+"/app@"+digest, "", func(library.Progress) {}); err != nil {
		t.Fatal(err)
	}
	if got := r.digest("app"); got != digest {
		t.Errorf("after the pull in the hint: got digest %s", got)
	}
}

// An image's label names the program of its templates, unless their creator names one.
func TestProgramOfLabel(t *testing.T) {
	r := openCatalog(t)
	ref := r.host + "/served:1"
	imagetest.Publish(t, ref, imagetest.Image(t, v1.Config{
		Labels:      map[string]string{catalog.StartLabel: "exec serve"},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "check"}},
	}, imagetest.Layer(t, imagetest.File{Name: "text", Content: "one"})))
	for name, c := range map[string]struct {
		settings catalog.Settings
		command  string
	}{
		"label":   {catalog.Settings{}, "/bin/sh -c exec serve"},
		"creator": {catalog.Settings{Start: &sandbox.Start{Command: []string{"other"}}}, "other"},
	} {
		v := r.create(local, name, ref, c.settings).Versions[0]
		if v.Start == nil || strings.Join(v.Start.Command, " ") != c.command || strings.Join(v.Start.Ready, " ") != "check" || v.Memory == "" {
			t.Errorf("%s: got version %+v, program %+v, want %q, ready with check, and memory", name, v, v.Start, c.command)
		}
	}
	if v := r.create(local, "plain", r.publish("plain:1", "one"), catalog.Settings{}).Versions[0]; v.Start != nil || v.Memory != "" {
		t.Errorf("without the label: got %+v, want no program", v)
	}
}

func TestVersionMemory(t *testing.T) {
	r := openCatalog(t)
	name := r.publish("app:1", "one")
	start := catalog.Settings{Start: &sandbox.Start{Command: []string{"serve"}, Ready: []string{"check"}}}
	created := r.create(local, "app", name, start)
	v := created.Versions[0]
	if r.sandboxes.memory[v.Memory] != created.ID+":version-1" || v.Maker != nil {
		t.Fatalf("Create: got version %+v, memory %v", v, r.sandboxes.memory)
	}
	if got, err := r.resolve("app"); err != nil || got.Memory != v.Memory || got.Start.Command[0] != "serve" {
		t.Errorf("Resolve: got %+v, error %v, want the saved memory", got, err)
	}
	// Versions without a tag are preserved up to a limit, with their memory.
	for range 12 {
		created = r.create(local, "app", name, start)
	}
	if len(created.Versions) != 11 || len(r.sandboxes.memory) != 11 || created.Versions[0].Number != 3 {
		t.Errorf("after 13 versions: got %d from number %d, %d with memory, want 11 from number 3", len(created.Versions), created.Versions[0].Number, len(r.sandboxes.memory))
	}
	// A failure leaves neither a version nor memory, and does not move the tag.
	r.sandboxes.fail = fault.New(fault.Invalid, "template_not_ready", "not ready")
	if _, err := r.Create(t.Context(), local, catalog.Request{Template: "app", Image: name, Settings: start}); fault.CodeOf(err) != "template_not_ready" {
		t.Error(err)
	}
	if _, err := r.Create(t.Context(), local, catalog.Request{Template: "new", Image: name, Settings: start}); fault.CodeOf(err) != "template_not_ready" {
		t.Error(err)
	}
	all, err := r.List(local)
	if err != nil || len(all) != 1 || all[0].Tags["default"] != 13 || len(all[0].Versions) != 11 {
		t.Errorf("List after failures: got %+v, error %v, want the 11 versions and their tag", all, err)
	}
	// An engine that cannot save memory is not an error.
	r.sandboxes.fail, r.sandboxes.note = nil, "cannot"
	if created = r.create(local, "other", name, start); created.Versions[0].Memory != "" || created.Versions[0].Note != "cannot" {
		t.Errorf("Create without saved memory: got %+v, want a note", created.Versions[0])
	}
	if err := r.Remove(t.Context(), local, "app", false); err != nil || len(r.sandboxes.memory) != 0 {
		t.Errorf("after Remove: got memory %v, error %v, want none", r.sandboxes.memory, err)
	}
}

// A key may use and change its own templates. All callers may use the templates of local callers,
// and only local callers may change those.
func TestTemplatePermissions(t *testing.T) {
	r := openCatalog(t)
	name := r.publish("app:1", "one")
	if _, err := r.Create(t.Context(), alice, catalog.Request{Template: "mine", Image: name}); fault.CodeOf(err) != "image_not_found" {
		t.Errorf("Create by a key: got %v, want image_not_found, because a key pulls no image", err)
	}
	r.create(local, "shared", name, catalog.Settings{})
	r.create(alice, "mine", name, catalog.Settings{})
	mine, err := r.resolve("mine")
	if err != nil || !alice.MayStart(mine) || bob.MayStart(mine) || !local.MayStart(mine) {
		t.Errorf("Resolve of a template of a key: got %+v, error %v", mine, err)
	}
	if all, err := r.List(bob); err != nil || len(all) != 1 || all[0].Name != "shared" {
		t.Errorf("List by bob: got %+v, error %v, want only shared", all, err)
	}
	for want, do := range map[string]func() error{
		"local_only":         func() error { return r.Remove(t.Context(), alice, "shared", false) },
		"template_not_found": func() error { return r.Remove(t.Context(), bob, "mine", false) },
		"template_name_taken": func() error {
			_, err := r.Create(t.Context(), bob, catalog.Request{Template: "mine", Image: name})
			return err
		},
	} {
		if err := do(); fault.CodeOf(err) != want {
			t.Errorf("got error %v, want code %s", err, want)
		}
	}
	if _, err := r.Tag(t.Context(), alice, "mine", []string{"2"}); err != nil {
		t.Error(err)
	}
	if err := r.Remove(t.Context(), alice, "mine", false); err != nil {
		t.Error(err)
	}
	// Each change has an audit entry, and so has each refused change of a template that the caller
	// can see.
	if n := len(r.entries.Entries()); n != 8 {
		t.Errorf("got %d audit entries, want 8", n)
	}
}

// hostTemplates has the templates of the host, without files.
type hostTemplates struct{}

func (hostTemplates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	return sandbox.Template{Name: ref.Name}, nil
}

// A template of the machine replaces the one that E2B's code interpreter requests, for all callers.
// No template replaces the base, and a template of one key replaces nothing.
func TestTemplateOfMachineReplacesCodeInterpreter(t *testing.T) {
	const name = "code-interpreter-v1"
	r := openCatalog(t)
	r.all = r.FollowedBy(hostTemplates{})
	image := r.publish("app:1", "one")
	r.create(local, "app", image, catalog.Settings{})
	r.create(alice, "mine", image, catalog.Settings{})
	requireHost := func(what string) {
		t.Helper()
		got, err := r.Inspect(bob, name)
		if err != nil || !got.Host || len(got.Versions) != 0 || len(got.ID) != 20 || r.digest(name) != "" {
			t.Errorf("%s: got %+v with the digest %q, error %v, want the host's template", what, got, r.digest(name), err)
		}
		if byID, err := r.Inspect(bob, got.ID); err != nil || byID.Name != name {
			t.Errorf("%s: by its ID: got %+v, error %v", what, byID, err)
		}
	}
	requireHost("at first")
	if _, err := r.Inspect(local, name+":2"); fault.CodeOf(err) != "template_tag_not_found" {
		t.Errorf("a tag of the host's template: got %v", err)
	}
	for what, do := range map[string]func() error{
		"the base": func() error {
			_, err := r.Create(t.Context(), local, catalog.Request{Template: "base", Image: image})
			return err
		},
		"by a key": func() error {
			_, err := r.Create(t.Context(), alice, catalog.Request{Template: name, Image: image})
			return err
		},
		"by an alias of a key's template": func() error {
			_, err := r.Alias(t.Context(), local, "mine", []string{name})
			return err
		},
	} {
		if err := do(); fault.CodeOf(err) != "template_name_taken" {
			t.Errorf("%s: got %v, want template_name_taken", what, err)
		}
	}
	requireHost("after refused changes")

	made := r.create(local, name, image, catalog.Settings{})
	if got, err := r.Inspect(bob, name); err != nil || got.Host || got.ID != made.ID || r.digest(name) != made.Versions[0].Digest {
		t.Errorf("replaced: got %+v with the digest %q, error %v, want the digest %q", got, r.digest(name), err, made.Versions[0].Digest)
	}
	if _, err := r.Tag(t.Context(), alice, name, []string{"2"}); fault.CodeOf(err) != "local_only" {
		t.Errorf("a key changes the template of the machine: got %v, want local_only", err)
	}
	if err := r.Remove(t.Context(), local, name, false); err != nil {
		t.Error(err)
	}
	requireHost("after the removal")
	if _, err := r.Alias(t.Context(), local, "app", []string{name}); err != nil || r.digest(name) == "" {
		t.Errorf("an alias of a template of the machine: got %v", err)
	}
}
