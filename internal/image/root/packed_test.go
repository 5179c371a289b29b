package root

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/layer"
)

// madeRoot returns a root and its view with a guest.
func madeRoot(t *testing.T, guest string) (*Store, Root, engine.HostView) {
	t.Helper()
	s, blobs := stores(t, t.TempDir())
	img := stored(t, blobs, imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "bin/app", Content: "program"})))
	r, err := s.Make(t.Context(), img, blobs, layer.DefaultLimits, ignore)
	if err != nil {
		t.Fatal(err)
	}
	return s, r, viewWith(r, guest)
}

// viewWith returns the view of a root with a guest.
func viewWith(r Root, guest string) engine.HostView {
	return engine.HostView{Dir: r.Tree(), Owners: r.Owners(), Binds: []engine.Bind{{Source: guest, Target: GuestTarget}}}
}

func TestPackIsMadeOnceForEachGuest(t *testing.T) {
	first := imagetest.Guest(t)
	s, r, view := madeRoot(t, first)
	if r.Packed(view) != nil || r.PackedBytes() != 0 {
		t.Error("a root has a packed form before Pack")
	}
	if err := s.Pack(t.Context(), r, view); err != nil {
		t.Fatal(err)
	}
	packed := r.Packed(view)
	if packed == nil || packed.Owners != view.Owners || len(packed.Binds) != 1 || packed.Binds[0].Source != first {
		t.Fatalf("Packed: got %+v", packed)
	}
	before, err := os.Stat(packed.File)
	if err != nil || before.Mode().Perm() != 0o444 || r.PackedBytes() != before.Size() {
		t.Errorf("the file: %v, %v; %d bytes", before, err, r.PackedBytes())
	}
	if err := s.Pack(t.Context(), r, view); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(packed.File); err != nil || !os.SameFile(before, after) {
		t.Errorf("Pack made the file again: %v", err)
	}
	second := filepath.Join(t.TempDir(), "guest-2")
	if err := os.WriteFile(second, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	next := viewWith(r, second)
	if r.Packed(next) != nil {
		t.Error("the file of one guest serves another")
	}
	if err := s.Pack(t.Context(), r, next); err != nil {
		t.Fatal(err)
	}
	// A sandbox still uses the file of the first guest; then it does not.
	needed := map[string]bool{packed.File: true, r.Packed(next).File: true}
	if freed, err := s.RemoveOldPacked(r, needed, 0); err != nil || freed != 0 {
		t.Errorf("RemoveOldPacked of needed files: %d, %v", freed, err)
	}
	delete(needed, packed.File)
	if freed, err := s.RemoveOldPacked(r, needed, time.Hour); err != nil || freed != 0 {
		t.Errorf("RemoveOldPacked of a new file: %d, %v", freed, err)
	}
	if freed, err := s.RemoveOldPacked(r, needed, 0); err != nil || freed != before.Size() {
		t.Errorf("RemoveOldPacked: %d, %v, want %d bytes", freed, err, before.Size())
	}
	if r.Packed(view) != nil || r.Packed(next) == nil {
		t.Error("RemoveOldPacked removed the wrong file")
	}
}

func TestInterruptedPackIsRemoved(t *testing.T) {
	s, r, view := madeRoot(t, imagetest.Guest(t))
	s.step = func(string) error { return errors.New("interrupted") }
	if err := s.Pack(t.Context(), r, view); err == nil || r.Packed(view) != nil {
		t.Errorf("Pack that fails: %v", err)
	}
	draft := filepath.Join(r.home, ".draft-1")
	if err := os.WriteFile(draft, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.RemoveOldPacked(r, nil, 0); err != nil || freed != 4 {
		t.Errorf("RemoveOldPacked: %d, %v", freed, err)
	}
	if _, err := os.Stat(draft); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the draft is left: %v", err)
	}
}

// A caller that leaves gets its error, and the file is made for the others.
func TestPackContinuesWithoutCaller(t *testing.T) {
	s, r, view := madeRoot(t, imagetest.Guest(t))
	ctx, cancel := context.WithCancel(t.Context())
	began, release := make(chan struct{}), make(chan struct{})
	s.step = func(string) error { close(began); <-release; return nil }
	left := make(chan error)
	go func() { left <- s.Pack(ctx, r, view) }()
	<-began
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	joined := make(chan error)
	go func() { joined <- s.Pack(t.Context(), r, view) }()
	close(release)
	if err := <-joined; err != nil || r.Packed(view) == nil {
		t.Errorf("the other caller got %v", err)
	}
}

// Where a user cannot read a file of an image, there is no packed form, and Pack does not try again.
func TestUnpackableRootIsRemembered(t *testing.T) {
	s, r, view := madeRoot(t, imagetest.Guest(t))
	if err := os.WriteFile(r.packedFile(view), []byte(unpackable), 0o600); err != nil {
		t.Fatal(err)
	}
	s.step = func(name string) error { return errors.New("tried again: " + name) }
	if err := s.Pack(t.Context(), r, view); err != nil || r.Packed(view) != nil {
		t.Errorf("Pack: %v, %+v", err, r.Packed(view))
	}
	if !strings.HasSuffix(r.packedFile(view), packedSuffix) {
		t.Errorf("the file is %s", r.packedFile(view))
	}
}
