package stagetree_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/build/stagetree"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/guest/javastore"
	"github.com/crannog/crannog/internal/image/layer"
)

// archive returns a sandbox's changes in the format of an engine.
func archive(t *testing.T, entries ...tar.Header) *stagetree.Changes {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "changes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := tar.NewWriter(f)
	for _, h := range entries {
		content := h.Xattrs["content"] //nolint:staticcheck // only a place for the test's own value
		h.Xattrs = nil                 //nolint:staticcheck // as above
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := stagetree.ReadChanges(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// file returns an entry of a regular file. Its content is in Xattrs, which archive removes.
func file(name, content string) tar.Header {
	return tar.Header{Name: "./" + name, Xattrs: map[string]string{"content": content}}
}

func dir(name string) tar.Header { return tar.Header{Name: "./" + name + "/", Typeflag: tar.TypeDir} }

// entryRecorder records the entries of a layer.
type entryRecorder []string

// Add records an entry.
func (w *entryRecorder) Add(h tar.Header, content io.Reader) error {
	text := h.Name
	if h.Linkname != "" {
		text += ">" + h.Linkname
	}
	if content != nil {
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		text += "=" + string(data)
	}
	*w = append(*w, text)
	return nil
}

// stage returns a stage with files.
func stage(t *testing.T, files ...string) *stagetree.Tree {
	t.Helper()
	top := filepath.Join(t.TempDir(), "stage")
	tree, err := stagetree.New(top, layer.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(top, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("lower"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func TestWriteChangesAsLayer(t *testing.T) {
	removed := tar.Header{Name: "./etc/old", Typeflag: tar.TypeChar}
	c := archive(t, dir("var"), dir("etc"), file("etc/b", "B"),
		// Removals that the engine writes as links to the first one.
		removed, tar.Header{Name: "./etc/never", Typeflag: tar.TypeLink, Linkname: "./etc/old"},
		tar.Header{Name: "./etc/other", Typeflag: tar.TypeLink, Linkname: "./etc/old"},
		// Hard links in any order.
		file("z", "Z"), tar.Header{Name: "./a", Typeflag: tar.TypeLink, Linkname: "./z"}, tar.Header{Name: "./m", Typeflag: tar.TypeLink, Linkname: "./z"},
		// Changes of the sandbox's own files, and of the files of a mount.
		file("etc/resolv.conf", "x"), file(".crannog/x", "x"), file("proc/x", "x"), dir("run"), dir("run/lock"), dir("cache"), file("cache/x", "C"),
		// A directory that was created again, and one that is new.
		tar.Header{Name: "./etc/again/", Typeflag: tar.TypeDir, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
		tar.Header{Name: "./etc/fresh/", Typeflag: tar.TypeDir, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
	)
	over := stage(t, "etc/old", "etc/other", "etc/again/x", "run/x")
	var got entryRecorder
	if err := c.Write(&got, over, []string{"cache"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"a=Z", "etc/again/", "etc/again/.wh..wh..opq", "etc/b=B", "etc/fresh/", "etc/.wh.old", "etc/.wh.other", "m>a", "var/", "z>a"}
	if !slices.Equal(got, want) {
		t.Errorf("the layer has\n%q, want\n%q", got, want)
	}
}

// Certificates of a sandbox belong to this machine's gateway and not to an image.
func TestLayerOmitsGatewayCertificates(t *testing.T) {
	const authority = "-----BEGIN CERTIFICATE-----\nQUJDREVGR0hJSktMTU5PUA==\n-----END CERTIFICATE-----\n"
	link := func(name, to string) tar.Header {
		return tar.Header{Name: "." + name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	gatewayFiles := []tar.Header{
		dir("etc"), dir("etc/ssl"), dir("etc/ssl/certs"), file(strings.TrimPrefix(certs.AuthorityPath, "/"), authority),
		link("/etc/ssl/certs/abcdef01.0", certs.AuthorityPath), link(certs.OtherBundles()[0], certs.BundlePath),
	}
	var got entryRecorder
	c := archive(t, append(slices.Clone(gatewayFiles), file(strings.TrimPrefix(certs.BundlePath, "/"), "roots\n"+authority), file("app", "A"))...)
	if err := c.Write(&got, stage(t), nil); err != nil || strings.Join(got, " ") != "app=A" && !slices.Equal(got, []string{"app=A", "etc/"}) {
		t.Errorf("layer: got %q, error %v", got, err)
	}
	got = nil
	c = archive(t, append(slices.Clone(gatewayFiles), file(strings.TrimPrefix(certs.BundlePath, "/"), "roots"), link("/app.pem", certs.BundlePath))...)
	if err := c.Write(&got, stage(t), nil); err != nil || !slices.Contains(got, "etc/ssl/certs/ca-certificates.crt=roots") || !slices.Contains(got, "app.pem>"+certs.BundlePath) {
		t.Errorf("layer with installed certificates: got %q, error %v", got, err)
	}
	// The installation of Java makes a store of all certificates that it finds. openssl rehash makes
	// relative links to them.
	entry := func(name, certificate string) []byte {
		return javastore.AppendEntry(nil, name, time.UnixMilli(1), []byte(certificate))
	}
	store := strings.TrimPrefix(certs.JavaPath, "/")
	root, own := entry("debian:root.pem", "a public root"), entry("debian:crannog.pem", "ABCDEFGHIJKLMNOP")
	made := string(javastore.Join(1, root))
	for name, c := range map[string]struct {
		store string
		want  string
	}{
		"made":           {string(javastore.Join(2, own, root)), store + "=" + made},
		"another format": {"another format with ABCDEFGHIJKLMNOP", ""},
		"a bundle":       {"roots\n" + authority, ""},
		"in a name":      {string(javastore.Join(1, entry("ABCDEFGHIJKLMNOP", "a public root"))), ""},
	} {
		got = nil
		c2 := archive(t, append(slices.Clone(gatewayFiles), dir("etc/ssl/certs/java"), file(store, c.store), link("/etc/ssl/certs/0123abcd.0", "crannog.pem"), link("/jdk/cacerts", certs.JavaPath))...)
		err := c2.Write(&got, stage(t), nil)
		has := slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, store+"=") })
		if err != nil || has != (c.want != "") || has && !slices.Contains(got, c.want) || !slices.Contains(got, "jdk/cacerts>"+certs.JavaPath) || strings.Contains(strings.Join(got, " "), "crannog") {
			t.Errorf("Java's store, %s: got %q, error %v, want %q", name, got, err, c.want)
		}
	}
	// A store that has only the authority more than the stage's is no change. What an earlier command
	// of the build put there instead of a file is not read.
	for name, c := range map[string]struct {
		below   func(path string) error
		changed bool
	}{
		"the same store": {func(path string) error { return os.WriteFile(path, []byte(made), 0o644) }, false},
		"another one":    {func(path string) error { return os.WriteFile(path, []byte("lower"), 0o644) }, true},
		"a FIFO":         {func(path string) error { return unix.Mkfifo(path, 0o644) }, true},
		"a link out":     {func(path string) error { return os.Symlink("/etc/passwd", path) }, true},
	} {
		tree := stage(t, filepath.Dir(store)+"/other")
		if err := c.below(filepath.Join(tree.Dir, store)); err != nil {
			t.Fatal(err)
		}
		got = nil
		changes := archive(t, append(slices.Clone(gatewayFiles), dir("etc/ssl/certs/java"), file(store, string(javastore.Join(2, root, own))))...)
		if err := changes.Write(&got, tree, nil); err != nil || slices.Contains(got, store+"="+made) != c.changed {
			t.Errorf("over %s: got %q, error %v, want the store in it: %v", name, got, err, c.changed)
		}
	}
}

func TestApplyToUpdatesCache(t *testing.T) {
	cache := t.TempDir()
	for _, name := range []string{"stays", "goes"} {
		if err := os.WriteFile(filepath.Join(cache, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := archive(t, dir("c"), file("c/new", "N"), tar.Header{Name: "./c/goes", Typeflag: tar.TypeChar}, dir("c/d"), file("c/d/deep", "D"), file("other", "x"))
	if err := c.Below("c").ApplyTo(t.Context(), cache, layer.DefaultLimits); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"new": "N", "stays": "", "d/deep": "D"} {
		if got, err := os.ReadFile(filepath.Join(cache, name)); err != nil || string(got) != want {
			t.Errorf("%s: ReadFile: got %q, error %v", name, got, err)
		}
	}
	for _, name := range []string{"goes", "other"} {
		if _, err := os.Lstat(filepath.Join(cache, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s still exists: %v", name, err)
		}
	}
}

// A cache that a command of another user fills has files of that user.
func TestApplyToAcceptsFilesOfOtherUsers(t *testing.T) {
	cache := t.TempDir()
	owned := file("c/new", "N")
	owned.Uid, owned.Gid = 1000, 1000
	if err := archive(t, owned).Below("c").ApplyTo(t.Context(), cache, layer.DefaultLimits); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(cache, "new")); err != nil || string(got) != "N" {
		t.Errorf("ReadFile: got %q, error %v", got, err)
	}
}

// Prepare resolves links of an image inside the stage, so that a link cannot lead to this machine's
// files.
func TestPrepareResolvesLinksInStage(t *testing.T) {
	tree := stage(t, "real/x")
	for name, to := range map[string]string{"out": "/etc", "up": "../../../etc", "in": "/real"} {
		if err := os.Symlink(to, filepath.Join(tree.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	at, undo, err := tree.Prepare("/work/dir", []stagetree.MountTarget{{Target: "/in/sub", Directory: true}, {Target: "/up/passwd2"}, {Target: "/run/secrets/x"}})
	if err != nil || !slices.Equal(at, []string{"real/sub", "etc/passwd2", "run/secrets/x"}) {
		t.Fatalf("Prepare: got %q, error %v", at, err)
	}
	if _, err := os.Lstat("/etc/passwd2"); err == nil {
		t.Fatal("Prepare created a file of this machine")
	}
	if !tree.Made("etc/hosts") || tree.Made("real") {
		t.Error("Made does not report what Prepare created")
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"real/sub", "etc/passwd2", "run/secrets"} {
		if _, err := os.Lstat(filepath.Join(tree.Dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if at, err := tree.Resolve("/out/none/at/all"); err != nil || at != "etc/none/at/all" {
		t.Errorf("Resolve through a link to nothing: got %q, error %v", at, err)
	}
	if err := tree.Remove(); err != nil {
		t.Error(err)
	}
}
