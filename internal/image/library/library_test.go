package library_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/archive"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/sandbox"
)

// openLibrary opens a library that may use a test registry.
func openLibrary(t *testing.T, dir, host string, change ...func(*library.Options)) *library.Library {
	t.Helper()
	o := library.Options{Dir: dir, Guest: imagetest.Guest(t), Grace: -1, Registry: registry.Options{Keychain: authn.NewMultiKeychain(), Rules: registry.Rules{Insecure: []string{host}}}}
	for _, c := range change {
		c(&o)
	}
	l, err := library.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ignore(library.Progress) {}

// files returns the files of a library, except its lock.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// appImage returns an image whose program has the given text.
func appImage(t *testing.T, text string) v1.Image {
	t.Helper()
	return imagetest.Image(t, v1.Config{User: "app", Entrypoint: []string{"/bin/app"}, Env: []string{"A=1"}},
		imagetest.Layer(t, imagetest.File{Name: "etc/passwd", Content: "app:x:5:5::/:/bin/sh\n"}), imagetest.Layer(t, imagetest.File{Name: "bin/app", Content: text}))
}

func TestImageLifeCycle(t *testing.T) {
	host, dir := imagetest.Registry(t), t.TempDir()
	img := appImage(t, "one")
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	imagetest.Publish(t, host+"/org/app:1", img)
	l := openLibrary(t, dir, host)
	stages := map[string]int{}
	got, err := l.Pull(t.Context(), host+"/org/app:1", "", func(p library.Progress) { stages[p.Stage]++ })
	if err != nil || got.Digest != want || got.Name != host+"/org/app:1" || got.Root == nil || got.Config.User != "app" || got.Source != host {
		t.Fatalf("Pull: got %+v, error %v", got, err)
	}
	if stages[library.StagePull] == 0 || stages[library.StageUnpack] == 0 {
		t.Errorf("Pull reported the stages %v, want pull and unpack", stages)
	}
	for _, ref := range []string{host + "/org/app:1", want.String(), want.Hex[:12]} {
		if found, err := l.Inspect(ref); err != nil || found.Digest != want {
			t.Errorf("Inspect(%s): got %+v, error %v", ref, found, err)
		}
	}
	for _, ref := range []string{host + "/org/app:2", "app", "deadbeef", want.Hex[:4]} {
		if _, err := l.Inspect(ref); fault.CodeOf(err) != "image_not_found" {
			t.Errorf("Inspect(%s): error %v", ref, err)
		}
	}
	// The image is used as the template of a sandbox, by name and by ID.
	template, err := l.ResolveImage(t.Context(), host+"/org/app:1", false)
	if err != nil || template.DefaultUser != "app" || template.Env["A"] != "1" {
		t.Fatalf("ResolveImage: got %+v, error %v", template, err)
	}
	data, err := os.ReadFile(filepath.Join(template.Image.View().Dir, "bin/app"))
	if err != nil || string(data) != "one" {
		t.Errorf("ReadFile: got %q, error %v", data, err)
	}
	if byID, err := l.Resolve(t.Context(), sandbox.Reference{Name: template.ID}); err != nil || byID.Image.View().Dir != template.Image.View().Dir {
		t.Errorf("Resolve by ID: got %+v, error %v", byID, err)
	}
	// The name has E2B's form, with and without a tag.
	var b bytes.Buffer
	if err := l.Export(t.Context(), host+"/org/app:1", archive.OCI, &b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "org/mine:2"} {
		if _, err := l.Import(t.Context(), file, name, "", ignore); err != nil {
			t.Fatal(err)
		}
		ref, err := sandbox.ParseReference(name)
		if err != nil {
			t.Fatal(err)
		}
		if byName, err := l.Resolve(t.Context(), ref); err != nil || byName.ID != template.ID {
			t.Errorf("%s: Resolve: got %+v, error %v", name, byName, err)
		}
		ref.Tag = "3"
		if _, err := l.Resolve(t.Context(), ref); fault.KindOf(err) != fault.NotFound {
			t.Errorf("Resolve of %s with another tag: got %v, want NotFound", name, err)
		}
		if _, err := l.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	// The image is pushed to another name, and pulled again.
	if err := l.Push(t.Context(), host+"/org/app:1", host+"/copy:2", ignore); err != nil {
		t.Fatal(err)
	}
	if copied, err := l.Pull(t.Context(), host+"/copy:2", "", ignore); err != nil || copied.Digest != want {
		t.Errorf("Pull of the copy: got %+v, error %v", copied, err)
	}
	if list, err := l.List(); err != nil || len(list) != 2 {
		t.Errorf("List: got %v, error %v", list, err)
	}
	// Removing a name preserves blobs that another image needs.
	if removed, err := l.Remove(t.Context(), host+"/copy:2"); err != nil || len(removed) != 1 {
		t.Errorf("Remove: got names %v, error %v, want one", removed, err)
	}
	if _, err := l.ResolveImage(t.Context(), host+"/org/app:1", false); err != nil {
		t.Error(err)
	}
	if _, err := l.Remove(t.Context(), want.String()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("files left in the library: %v", left)
	}
}

func TestExportAndImport(t *testing.T) {
	host := imagetest.Registry(t)
	imagetest.Publish(t, host+"/app:1", appImage(t, "exported"))
	from := openLibrary(t, t.TempDir(), host)
	pulled, err := from.Pull(t.Context(), host+"/app:1", "", ignore)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{archive.OCI, archive.Docker} {
		var first, second bytes.Buffer
		if err := from.Export(t.Context(), host+"/app:1", format, &first); err != nil {
			t.Fatal(format, err)
		}
		if err := from.Export(t.Context(), host+"/app:1", format, &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: a second export differs: %v", format, err)
		}
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(file, first.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		into := openLibrary(t, t.TempDir(), "none")
		list, err := into.Import(t.Context(), file, "", "", ignore)
		if err != nil || len(list) != 1 || list[0].Name != host+"/app:1" || list[0].Root == nil || list[0].Root.Config != pulled.Root.Config {
			t.Errorf("Import(%s): got %+v, error %v", format, list, err)
			continue
		}
		if list, err = into.Import(t.Context(), file, "other:2", "", ignore); err != nil || list[0].Name != "other:2" {
			t.Errorf("Import(%s) under another name: got %+v, error %v", format, list, err)
		}
		// A changed byte is detected.
		broken := bytes.Clone(first.Bytes())
		at := bytes.Index(broken, []byte("\x1f\x8b"))
		if at < 0 {
			t.Fatalf("%s: no compressed layer", format)
		}
		broken[at+12] ^= 0xff
		if err := os.WriteFile(file, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openLibrary(t, t.TempDir(), "none").Import(t.Context(), file, "", "", ignore); fault.KindOf(err) != fault.Invalid && fault.CodeOf(err) != blob.CodeWrong {
			t.Errorf("%s: Import of a broken archive: got %v", format, err)
		}
	}
	file := filepath.Join(t.TempDir(), "noise")
	if err := os.WriteFile(file, []byte(strings.Repeat("noise", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, "/nowhere", t.TempDir(), "/dev/null"} {
		if _, err := from.Import(t.Context(), bad, "x:1", "", ignore); fault.CodeOf(err) != archive.CodeInvalid {
			t.Errorf("Import(%s): error %v", bad, err)
		}
	}
}

func TestRemoveKeepsTreeInUse(t *testing.T) {
	host, dir := imagetest.Registry(t), t.TempDir()
	imagetest.Publish(t, host+"/app:1", appImage(t, "kept"))
	l := openLibrary(t, dir, host)
	pulled, err := l.Pull(t.Context(), host+"/app:1", "", ignore)
	if err != nil {
		t.Fatal(err)
	}
	tree := pulled.Root.Tree()
	used := map[string]bool{tree: true}
	l.Protect(func(context.Context) (map[string]bool, error) { return used, nil })
	if _, err := l.Remove(t.Context(), host+"/app:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tree, "bin/app")); err != nil {
		t.Errorf("the tree of a sandbox was removed: %v", err)
	}
	if _, err := l.ResolveImage(t.Context(), host+"/app:1", false); fault.CodeOf(err) != "image_not_found" {
		t.Errorf("ResolveImage of a removed name: got %v, want image_not_found", err)
	}
	delete(used, tree)
	done, err := l.Prune(t.Context())
	if err != nil || done.Roots != 1 {
		t.Errorf("Prune: got %+v, error %v, want one tree", done, err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("files left in the library: %v", left)
	}
}

func TestLostImageIsListedAndPulledAgain(t *testing.T) {
	host, dir := imagetest.Registry(t), t.TempDir()
	imagetest.Publish(t, host+"/app:1", appImage(t, "lost"))
	l := openLibrary(t, dir, host)
	pulled, err := l.Pull(t.Context(), host+"/app:1", "", ignore)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "blobs", "sha256", pulled.Digest.Hex), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(host + "/app:1"); fault.CodeOf(err) != blob.CodeCorrupt {
		t.Errorf("Inspect with a changed manifest: got %v, want a corrupt blob", err)
	}
	list, err := l.List()
	if err != nil || len(list) != 1 || list[0].Name != host+"/app:1" {
		t.Errorf("List: got %v, error %v", list, err)
	}
	if _, err := l.Pull(t.Context(), host+"/app:1", "", ignore); err != nil {
		t.Error(err)
	}
	if _, err := l.Inspect(host + "/app:1"); err != nil {
		t.Error(err)
	}
}

func TestBudgetLimitsPull(t *testing.T) {
	host, dir := imagetest.Registry(t), t.TempDir()
	imagetest.Publish(t, host+"/app:1", appImage(t, strings.Repeat("\x00", 1<<20)))
	small := openLibrary(t, dir, host, func(o *library.Options) { o.Budget = 100 })
	if _, err := small.Pull(t.Context(), host+"/app:1", "", ignore); fault.CodeOf(err) != "image_budget" {
		t.Errorf("Pull of blobs beyond the budget: got %v, want image_budget", err)
	}
	// The blobs fit into the budget, but their unpacked content does not.
	some := openLibrary(t, dir, host, func(o *library.Options) { o.Budget = 100_000 })
	if _, err := some.Pull(t.Context(), host+"/app:1", "", ignore); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("Pull of a tree beyond the budget: got %v, want Exhausted", err)
	}
	if _, err := some.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("files left in the library: %v", left)
	}
	if _, err := openLibrary(t, dir, host, func(o *library.Options) { o.Budget = 10 << 20 }).Pull(t.Context(), host+"/app:1", "", ignore); err != nil {
		t.Errorf("Pull within the budget: %v", err)
	}
}

func TestResolveImagePullsOnlyIfAllowed(t *testing.T) {
	host := imagetest.Registry(t)
	imagetest.Publish(t, host+"/app:1", appImage(t, "x"))
	l := openLibrary(t, t.TempDir(), host)
	if _, err := l.ResolveImage(t.Context(), host+"/app:1", false); fault.CodeOf(err) != "image_not_found" {
		t.Errorf("ResolveImage without mayPull: got %v, want image_not_found", err)
	}
	if _, err := l.ResolveImage(t.Context(), host+"/app:1", true); err != nil {
		t.Errorf("ResolveImage with mayPull: %v", err)
	}
}
