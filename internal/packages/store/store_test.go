package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

func openStore(t *testing.T, budget int64) (*Store, *Reader) {
	t.Helper()
	state := t.TempDir()
	s, err := Open(state, budget)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := OpenDir(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return s, NewReader(dir)
}

func entryOf(key, content string) Entry {
	sum := sha256.Sum256([]byte(content))
	return Entry{
		Key: key, Ecosystem: packages.NPM, Name: "a", Version: "1.0.0", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content)),
		Fetched: time.Now().UTC(),
	}
}

func put(t *testing.T, s *Store, key, content string) Entry {
	t.Helper()
	e := entryOf(key, content)
	if err := s.Put(e, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestFindReturnsStoredPackage(t *testing.T) {
	s, r := openStore(t, 0)
	put(t, s, "https://a.test/x", "content")
	put(t, s, "https://a.test/y", "content") // the same content is stored once
	e, f, err := r.Find("https://a.test/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil || string(text) != "content" || e.Name != "a" {
		t.Fatalf("got %q and %+v (%v), want the stored content", text, e, err)
	}
	if _, _, err := r.Find("https://a.test/z"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("missing key: got %v, want NotFound", err)
	}
	list, err := s.List()
	if err != nil || len(list) != 2 {
		t.Errorf("List: got %+v (%v), want 2 entries", list, err)
	}
	blobs, err := filepath.Glob(filepath.Join(s.dir, blobsDir, "*", "*"))
	if err != nil || len(blobs) != 1 {
		t.Errorf("got the contents %v (%v), want one", blobs, err)
	}
}

func TestPutRejectsContentOfAnotherDigest(t *testing.T) {
	s, r := openStore(t, 0)
	for name, content := range map[string]string{"other": "CONTENT", "shorter": "conten", "longer": "contents"} {
		if err := s.Put(entryOf("https://a.test/x", "content"), strings.NewReader(content)); fault.CodeOf(err) != "package_digest" {
			t.Errorf("%s content: got %v, want package_digest", name, err)
		}
	}
	if _, _, err := r.Find("https://a.test/x"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("after rejected contents: got %v, want NotFound", err)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "*", "*", "*"))
	if drafts, _ := filepath.Glob(filepath.Join(s.dir, "*", "*", ".*")); err != nil || len(left)+len(drafts) != 0 {
		t.Errorf("got the files %v %v (%v), want none", left, drafts, err)
	}
}

func TestPutRejectsInvalidEntries(t *testing.T) {
	s, _ := openStore(t, 0)
	for name, change := range map[string]func(*Entry){
		"digest is a path":    func(e *Entry) { e.SHA256 = "../" + e.SHA256[3:] },
		"digest in upper":     func(e *Entry) { e.SHA256 = strings.ToUpper(e.SHA256) },
		"size is negative":    func(e *Entry) { e.Size = -1 },
		"size is too large":   func(e *Entry) { e.Size = MaxBlob + 1 },
		"unknown ecosystem":   func(e *Entry) { e.Ecosystem = "cpan" },
		"no key":              func(e *Entry) { e.Key = "" },
		"a name is very long": func(e *Entry) { e.Name = strings.Repeat("a", maxText+1) },
	} {
		e := entryOf("https://a.test/x", "content")
		change(&e)
		if err := s.Put(e, strings.NewReader("content")); fault.CodeOf(err) != "package_entry" {
			t.Errorf("%s: got %v, want package_entry", name, err)
		}
	}
}

func TestDamagedFilesCountAsMissing(t *testing.T) {
	s, r := openStore(t, 0)
	e := put(t, s, "https://a.test/x", "content")
	path := filepath.Join(s.dir, shardPath(blobsDir, e.SHA256))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Find(e.Key); fault.KindOf(err) != fault.NotFound {
		t.Errorf("without its content: got %v, want NotFound", err)
	}
	if err := os.WriteFile(path, []byte("kontent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Find(e.Key); fault.KindOf(err) != fault.NotFound {
		t.Errorf("with another content: got %v, want NotFound", err)
	}
	put(t, s, e.Key, "content") // repairs the content
	if _, f, err := r.Find(e.Key); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	// An entry that was copied to the file of another key is not used for that key.
	text, err := os.ReadFile(filepath.Join(s.dir, shardPath(entriesDir, keySum(e.Key))))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(s.dir, shardPath(entriesDir, keySum("https://b.test/x")))
	if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o755), os.WriteFile(other, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Find("https://b.test/x"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("entry of another key: got %v, want NotFound", err)
	}
}

func TestPruneKeepsRecentlyUsedEntries(t *testing.T) {
	s, r := openStore(t, 0)
	old := put(t, s, "https://a.test/old", strings.Repeat("o", 1000))
	used := put(t, s, "https://a.test/used", strings.Repeat("u", 1000))
	for e, at := range map[*Entry]time.Time{&old: time.Now().Add(-3 * time.Hour), &used: time.Now().Add(time.Hour)} {
		if err := os.Chtimes(filepath.Join(s.dir, shardPath(blobsDir, e.SHA256)), at, at.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	stale := filepath.Join(s.dir, blobsDir, ".draft-1")
	if err := errors.Join(os.WriteFile(stale, nil, 0o600), os.Chtimes(stale, time.Now(), time.Now().Add(-2*draftMaxAge))); err != nil {
		t.Fatal(err)
	}
	pruned, err := s.Prune(1500)
	if err != nil || pruned != (Pruned{Entries: 1, Bytes: 1000}) {
		t.Fatalf("Prune: got %+v (%v), want one entry of 1000 bytes", pruned, err)
	}
	if _, _, err := r.Find(old.Key); fault.KindOf(err) != fault.NotFound {
		t.Errorf("least recently used entry: got %v, want NotFound", err)
	}
	if _, f, err := r.Find(used.Key); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unfinished file of a crash: got %v, want it removed", err)
	}
	if pruned, err := s.Prune(0); err != nil || pruned.Entries != 1 {
		t.Errorf("Prune(0): got %+v (%v), want one entry", pruned, err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("after Prune(0): got %+v (%v), want no entry", list, err)
	}
}

func TestVerifyRemovesDamagedContents(t *testing.T) {
	s, r := openStore(t, 0)
	good, bad := put(t, s, "https://a.test/good", "good"), put(t, s, "https://a.test/bad", "content")
	path := filepath.Join(s.dir, shardPath(blobsDir, bad.SHA256))
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("kontent"), 0o600)); err != nil {
		t.Fatal(err)
	}
	done, err := s.Verify(t.Context())
	if err != nil || done.Contents != 1 || done.Bytes != 4 || !slices.Equal(done.Damaged, []string{bad.SHA256}) {
		t.Fatalf("Verify: got %+v (%v), want one good and one damaged content", done, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged content: got %v, want it removed", err)
	}
	if _, f, err := r.Find(good.Key); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if done, err := s.Verify(t.Context()); err != nil || len(done.Damaged) != 0 {
		t.Errorf("Verify again: got %+v (%v), want nothing damaged", done, err)
	}
}

func TestPutEnforcesBudget(t *testing.T) {
	s, _ := openStore(t, 10_000)
	for i := range 40 {
		put(t, s, "https://a.test/"+string(rune('a'+i)), strings.Repeat(string(rune('a'+i)), 1000))
	}
	list, err := s.List()
	if err != nil || len(list) == 0 || len(list) > 11 {
		t.Errorf("got %d entries of 1000 bytes (%v), want 1 to 11", len(list), err)
	}
}

func FuzzEntry(f *testing.F) {
	good, err := json.Marshal(entryOf("https://a.test/x", "content"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"key":"x","sha256":"../../etc/passwd"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := readEntry(bytes.NewReader(text))
		if err != nil {
			return
		}
		// The digest of an accepted entry must lead to a path inside the store.
		if p := shardPath(blobsDir, e.SHA256); !filepath.IsLocal(p) || len(filepath.Base(p)) != 64 {
			t.Errorf("%q leads to %s", text, p)
		}
	})
}
