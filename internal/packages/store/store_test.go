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
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

func opened(t *testing.T, budget int64) (*Store, *Reader) {
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

func TestAStoredPackageIsFound(t *testing.T) {
	s, r := opened(t, 0)
	put(t, s, "https://a.test/x", "content")
	put(t, s, "https://a.test/y", "content") // the same content is stored once
	e, f, err := r.Find("https://a.test/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil || string(text) != "content" || e.Name != "a" {
		t.Fatalf("%q %+v %v", text, e, err)
	}
	if _, _, err := r.Find("https://a.test/z"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a missing key: %v", err)
	}
	list, err := s.List()
	if err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
	blobs, err := filepath.Glob(filepath.Join(s.dir, blobsDir, "*", "*"))
	if err != nil || len(blobs) != 1 {
		t.Errorf("%v %v", blobs, err)
	}
}

func TestAContentMustBeWhatItsEntrySays(t *testing.T) {
	s, r := opened(t, 0)
	for name, content := range map[string]string{"other": "CONTENT", "shorter": "conten", "longer": "contents"} {
		if err := s.Put(entryOf("https://a.test/x", "content"), strings.NewReader(content)); fault.CodeOf(err) != "package_digest" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := r.Find("https://a.test/x"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("something was stored: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "*", "*", "*"))
	if drafts, _ := filepath.Glob(filepath.Join(s.dir, "*", "*", ".*")); err != nil || len(left)+len(drafts) != 0 {
		t.Errorf("left behind: %v %v %v", left, drafts, err)
	}
}

func TestEntriesAreChecked(t *testing.T) {
	s, _ := opened(t, 0)
	for name, change := range map[string]func(*Entry){
		"digest is a path":    func(e *Entry) { e.SHA256 = "../" + e.SHA256[3:] },
		"digest in upper":     func(e *Entry) { e.SHA256 = strings.ToUpper(e.SHA256) },
		"size is negative":    func(e *Entry) { e.Size = -1 },
		"size is too large":   func(e *Entry) { e.Size = MaxBlob + 1 },
		"unknown ecosystem":   func(e *Entry) { e.Ecosystem = "cpan" },
		"no key":              func(e *Entry) { e.Key = "" },
		"a name is very long": func(e *Entry) { e.Name = strings.Repeat("a", longestText+1) },
	} {
		e := entryOf("https://a.test/x", "content")
		change(&e)
		if err := s.Put(e, strings.NewReader("content")); fault.CodeOf(err) != "package_entry" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDamageLooksLikeAMissingFile(t *testing.T) {
	s, r := opened(t, 0)
	e := put(t, s, "https://a.test/x", "content")
	path := filepath.Join(s.dir, place(blobsDir, e.SHA256))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Find(e.Key); fault.KindOf(err) != fault.NotFound {
		t.Errorf("without its content: %v", err)
	}
	if err := os.WriteFile(path, []byte("kontent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Find(e.Key); fault.KindOf(err) != fault.NotFound {
		t.Errorf("with another content: %v", err)
	}
	put(t, s, e.Key, "content") // repairs it
	if _, f, err := r.Find(e.Key); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	// An entry that was copied to another key does not count for it.
	text, err := os.ReadFile(filepath.Join(s.dir, place(entriesDir, keySum(e.Key))))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(s.dir, place(entriesDir, keySum("https://b.test/x")))
	if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o755), os.WriteFile(other, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Find("https://b.test/x"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("an entry of another key: %v", err)
	}
}

func TestPruneKeepsWhatWasUsedLast(t *testing.T) {
	s, r := opened(t, 0)
	old := put(t, s, "https://a.test/old", strings.Repeat("o", 1000))
	used := put(t, s, "https://a.test/used", strings.Repeat("u", 1000))
	for e, at := range map[*Entry]time.Time{&old: time.Now().Add(-3 * time.Hour), &used: time.Now().Add(time.Hour)} {
		if err := os.Chtimes(filepath.Join(s.dir, place(blobsDir, e.SHA256)), at, at.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	stale := filepath.Join(s.dir, blobsDir, ".draft-1")
	if err := errors.Join(os.WriteFile(stale, nil, 0o600), os.Chtimes(stale, time.Now(), time.Now().Add(-2*draftLife))); err != nil {
		t.Fatal(err)
	}
	done, err := s.Prune(1500)
	if err != nil || done != (Pruned{Entries: 1, Bytes: 1000}) {
		t.Fatalf("%+v %v", done, err)
	}
	if _, _, err := r.Find(old.Key); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the unused one: %v", err)
	}
	if _, f, err := r.Find(used.Key); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a crash left behind: %v", err)
	}
	if done, err := s.Prune(0); err != nil || done.Entries != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

func TestTheBudgetHolds(t *testing.T) {
	s, _ := opened(t, 10_000)
	for i := range 40 {
		put(t, s, "https://a.test/"+string(rune('a'+i)), strings.Repeat(string(rune('a'+i)), 1000))
	}
	list, err := s.List()
	if err != nil || len(list) == 0 || len(list) > 11 {
		t.Errorf("%d entries, %v", len(list), err)
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
		// Whatever is accepted leads to a path inside the store.
		if p := place(blobsDir, e.SHA256); !filepath.IsLocal(p) || len(filepath.Base(p)) != 64 {
			t.Errorf("%q leads to %s", text, p)
		}
	})
}
