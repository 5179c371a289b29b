package store

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

// A large content is compared with its digest again after a while, and at once if its file changed.
func TestLargeContentsAreVerifiedOncePerMinute(t *testing.T) {
	s, _ := openStore(t, 1<<30)
	text := strings.Repeat("a", 1000)
	sum := sha256.Sum256([]byte(text))
	e := Entry{Key: "https://a.test/layer", Ecosystem: packages.OCI, Name: "a", SHA256: hex.EncodeToString(sum[:]), Size: 1000, Fetched: time.Now()}
	if err := s.Put(e, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, now := NewReader(dir), time.Now()
	r.now, r.large = func() time.Time { return now }, 1000
	find := func() error {
		_, f, err := r.Find(e.Key)
		f.Close()
		return err
	}
	if err := find(); err != nil || len(r.verified) != 1 {
		t.Fatalf("the first time: %v, %d contents are remembered", err, len(r.verified))
	}
	// Damage that no change of the file's times shows counts until the time is over.
	remembered := r.verified[e.SHA256]
	path := filepath.Join(s.dir, shardPath(blobsDir, e.SHA256))
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("b"+text[1:]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := find(); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a changed file: got %v, want NotFound", err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if remembered.state, err = StateOf(f); err != nil {
		t.Fatal(err)
	}
	r.verified[e.SHA256] = remembered
	if err := find(); err != nil {
		t.Errorf("within the time: %v", err)
	}
	now = now.Add(verifiedLife)
	if err := find(); fault.KindOf(err) != fault.NotFound {
		t.Errorf("after the time: got %v, want NotFound", err)
	}
}

// What is larger than the whole budget is not stored, and displaces nothing.
func TestContentBeyondTheBudgetIsNotStored(t *testing.T) {
	s, _ := openStore(t, 1000)
	put(t, s, "https://a.test/small", "small")
	large := strings.Repeat("a", 1001)
	if err := s.Put(entryOf("https://a.test/large", large), strings.NewReader(large)); fault.CodeOf(err) != "package_budget" {
		t.Errorf("got %v, want package_budget", err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 {
		t.Errorf("the cache has %+v (%v), want the small content", list, err)
	}
}
