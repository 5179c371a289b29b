package root

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// stored adds an image to a blob store.
func stored(t *testing.T, blobs *blob.Store, img v1.Image) manifest.Image {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte, err error) v1.Hash {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		d, err := blobs.Put(data)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		put(io.ReadAll(r))
	}
	put(img.RawConfigFile())
	loaded, err := manifest.Load(blobs, put(img.RawManifest()))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// stores opens a store of roots and a blob store.
func stores(t *testing.T, dir string) (*Store, *blob.Store) {
	t.Helper()
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(filepath.Join(dir, "roots"))
	if err != nil {
		t.Fatal(err)
	}
	return s, blobs
}

func ignore(int64, int64) {}

func TestMakePreparesTreeForSandbox(t *testing.T) {
	s, blobs := stores(t, t.TempDir())
	img := stored(t, blobs, imagetest.Image(t, v1.Config{User: "app", WorkingDir: "/srv/app", Env: []string{"PATH=/opt/bin", "A=b=c", "broken", "BAD=\n"}},
		imagetest.Layer(t, imagetest.File{Name: "etc/passwd", Content: "root:x:0:0::/root:/bin/sh\napp:x:1000:7::/:/bin/app"}, imagetest.File{Name: "etc/resolv.conf", Link: "/nowhere"},
			imagetest.File{Name: "etc/shadow", Content: "root:*:::::::", Mode: 0o640, GID: 42}),
		imagetest.Layer(t, imagetest.File{Name: "bin/app", Content: "program", Mode: 0o4755}),
	))
	var last int64
	r, err := s.Make(t.Context(), img, blobs, layer.DefaultLimits, func(done, total int64) {
		if done < last || total <= 0 {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.User != "app" || r.Dir != "/srv/app" || len(r.Env) != 2 || r.Env["PATH"] != "/opt/bin" || r.Env["A"] != "b=c" || last == 0 {
		t.Errorf("Make: got root %+v", r)
	}
	for name, want := range map[string]string{
		"bin/app": "program", "etc/resolv.conf": "", "etc/hostname": "crannog\n",
		"etc/passwd":             "root:x:0:0::/root:/bin/sh\napp:x:1000:7::/:/bin/app\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"etc/shadow":             "root:*:::::::\nuser:*:::::::\n",
		".crannog/crannog-guest": "",
	} {
		data, err := os.ReadFile(filepath.Join(r.Tree(), name))
		if err != nil || string(data) != want {
			t.Errorf("%s: ReadFile: got %q, error %v", name, data, err)
		}
	}
	for _, dir := range []string{"workspace", "proc", "sys", "dev", "tmp", "home/user", "srv/app", ".crannog/programs/1"} {
		if info, err := os.Lstat(filepath.Join(r.Tree(), dir)); err != nil || !info.IsDir() {
			t.Errorf("Lstat(%s): got %v, error %v", dir, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(r.Tree(), "tmp")); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("/tmp: got %v, error %v, want mode 1777", info, err)
	}
	owners, err := fileowners.Read(r.Owners())
	if want := (fileowners.Table{"/bin/app": {SetID: 0o4000}, "/etc/shadow": {GID: 42}, "/home/user": {UID: 1000, GID: 1000}}); err != nil || !maps.Equal(owners, want) {
		t.Errorf("owners: got %v, error %v, want %v", owners, err, want)
	}
	again, err := s.Make(t.Context(), img, blobs, layer.DefaultLimits, ignore)
	if err != nil || again.Tree() != r.Tree() || !again.Made.Equal(r.Made) {
		t.Errorf("second Make: got %+v, error %v, want the same root", again, err)
	}
}

// P54: links of an image do not affect where mounts are, or where the server writes.
func TestMakeReplacesLinksAtMountPoints(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	var files []imagetest.File
	for _, name := range []string{"workspace", "proc", "dev", "sys"} {
		files = append(files, imagetest.File{Name: name, Link: dir})
	}
	files = append(files, imagetest.File{Name: "etc/passwd", Link: "../../../../../../../.." + outside}, imagetest.File{Name: "etc/hostname", Link: outside}, imagetest.File{Name: "home", Link: "/var/home"})
	s, blobs := stores(t, dir)
	r, err := s.Make(t.Context(), stored(t, blobs, imagetest.Image(t, v1.Config{}, imagetest.Layer(t, files...))), blobs, layer.DefaultLimits, ignore)
	if err == nil {
		for _, name := range []string{"workspace", "proc", "dev", "sys", ".crannog"} {
			if info, err := os.Lstat(filepath.Join(r.Tree(), name)); err != nil || !info.IsDir() {
				t.Errorf("/%s: %v %v", name, info, err)
			}
		}
		for _, name := range []string{"etc/passwd", "etc/hostname"} {
			if info, err := os.Lstat(filepath.Join(r.Tree(), name)); err != nil || !info.Mode().IsRegular() {
				t.Errorf("/%s: %v %v", name, info, err)
			}
		}
	} else if fault.CodeOf(err) != layer.CodeRefused {
		t.Error(err)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "untouched" {
		t.Errorf("the file outside: got %q, error %v, want it untouched", data, err)
	}
}

func TestMakeRejectsLayerOfOtherImage(t *testing.T) {
	s, blobs := stores(t, t.TempDir())
	one := stored(t, blobs, imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: "1"})))
	two := stored(t, blobs, imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "b", Content: "2"})))
	one.Manifest.Layers = two.Manifest.Layers
	if _, err := s.Make(t.Context(), one, blobs, layer.DefaultLimits, ignore); fault.CodeOf(err) != blob.CodeWrong {
		t.Errorf("Make: got %v, want code %s", err, blob.CodeWrong)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		t.Errorf("files left in the store: %v, error %v", left, err)
	}
}

func TestMakeSetsOwners(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s, blobs := stores(t, t.TempDir())
	r, err := s.Make(t.Context(), stored(t, blobs, imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "f", Content: "x", UID: 70, GID: 71}))), blobs, layer.DefaultLimits, ignore)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{"f": {70, 71}, "home/user": {1000, 1000}, "workspace": {0, 0}} {
		info, err := os.Lstat(filepath.Join(r.Tree(), name))
		if err != nil {
			t.Fatal(err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid != want[0] || stat.Gid != want[1] {
			t.Errorf("%s: got owner %+v, want %v", name, stat, want)
		}
	}
}

func TestRemoveAndSweep(t *testing.T) {
	s, blobs := stores(t, t.TempDir())
	r, err := s.Make(t.Context(), stored(t, blobs, imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "d/", Mode: 0o100}))), blobs, layer.DefaultLimits, ignore)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].Tree() != r.Tree() {
		t.Errorf("List: got %v, error %v, want the root", list, err)
	}
	if err := s.Remove(r); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, draftPrefix+"left"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(time.Hour); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 1 {
		t.Errorf("a fresh draft was removed: %v %v", left, err)
	}
	if err := s.Sweep(0); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		t.Errorf("files left in the store: %v, error %v", left, err)
	}
}

// A process that is killed before any step leaves no root, or a complete one.
func TestMakeSurvivesKill(t *testing.T) {
	unpack := func(dir, dieBefore string) error {
		s, blobs := stores(t, dir)
		s.step = func(name string) error {
			if name == dieBefore {
				return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("still alive"))
			}
			return nil
		}
		img := stored(t, blobs, imagetest.Image(t, v1.Config{},
			imagetest.Layer(t, imagetest.File{Name: "a", Content: "1"}), imagetest.Layer(t, imagetest.File{Name: "b", Content: "2"})))
		_, err := s.Make(t.Context(), img, blobs, layer.DefaultLimits, ignore)
		return err
	}
	if dir := os.Getenv("CRANNOG_TEST_ROOT"); dir != "" {
		t.Fatal("the process was to be killed: ", unpack(dir, os.Getenv("CRANNOG_TEST_STEP")))
	}
	for _, step := range []string{"layer 0", "layer 1", "describe", "sync", "name", "sync directory"} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestMakeSurvivesKill$")
		cmd.Env = append(os.Environ(), "CRANNOG_TEST_ROOT="+dir, "CRANNOG_TEST_STEP="+step)
		out, err := cmd.CombinedOutput()
		if err == nil || bytes.Contains(out, []byte("FAIL")) {
			t.Fatalf("%s: the child was not killed: %v\n%s", step, err, out)
		}
		s, _ := stores(t, dir)
		list, err := s.List()
		if err != nil || len(list) > 1 || (len(list) == 1) != (step == "sync directory") {
			t.Errorf("%s: List: got %v, error %v", step, list, err)
		}
		if err := unpack(dir, ""); err != nil {
			t.Errorf("%s: Make after the kill: %v", step, err)
		}
		if err := s.Sweep(0); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(s.dir)
		if err != nil || len(left) != 1 || strings.HasPrefix(left[0].Name(), ".") {
			t.Errorf("%s: entries left: %v, error %v", step, left, err)
		}
	}
}
