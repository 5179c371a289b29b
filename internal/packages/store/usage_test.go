package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

func TestUsageCountsByEcosystem(t *testing.T) {
	s, _ := openStore(t, 1<<20)
	now := time.Now()
	s.usage.now = func() time.Time { return now }
	put(t, s, "https://a.test/x", "content")
	put(t, s, "https://a.test/y", "content") // the same content takes no further space
	if u, err := s.Usage(); err != nil || u.Budget != 1<<20 || len(u.Stored) != 1 || u.Stored[packages.NPM] != (Stored{Entries: 2, Bytes: 7}) {
		t.Errorf("got %+v (%v), want two entries with 7 bytes", u, err)
	}
	crate := entryOf("https://b.test/z", "crate")
	crate.Ecosystem = packages.Crates
	if err := s.Put(crate, strings.NewReader("crate")); err != nil {
		t.Fatal(err)
	}
	if u, err := s.Usage(); err != nil || len(u.Stored) != 1 {
		t.Errorf("shortly after: got %+v (%v), want the earlier count", u, err)
	}
	now = now.Add(usageLife)
	if u, err := s.Usage(); err != nil || u.Stored[packages.Crates] != (Stored{Entries: 1, Bytes: 5}) {
		t.Errorf("later: got %+v (%v), want the new entry", u, err)
	}
}

func TestUsageCountsEvictionsAndDamage(t *testing.T) {
	s, _ := openStore(t, 10_000)
	bad := put(t, s, "https://a.test/bad", "content")
	if u, err := s.Usage(); err != nil || u.Evicted != (Pruned{}) || u.Damaged != 0 {
		t.Fatalf("at first: got %+v (%v)", u, err)
	}
	path := filepath.Join(s.dir, shardPath(blobsDir, bad.SHA256))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("kontent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What a person removes is no eviction.
	if done, err := s.Prune(0); err != nil || done.Entries == 0 {
		t.Fatalf("Prune: got %+v (%v)", done, err)
	}
	if u, err := s.Usage(); err != nil || u.Evicted != (Pruned{}) || u.Damaged != 1 {
		t.Errorf("after Verify and Prune: got %+v (%v), want one damaged content and no eviction", u, err)
	}
	for i := range 40 {
		put(t, s, "https://a.test/"+string(rune('a'+i)), strings.Repeat(string(rune('a'+i)), 1000))
	}
	if u, err := s.Usage(); err != nil || u.Evicted.Entries == 0 || u.Evicted.Bytes < 1000*int64(u.Evicted.Entries) {
		t.Errorf("beyond the budget: got %+v (%v), want evictions", u, err)
	}
}
