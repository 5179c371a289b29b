package template

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The revision changes whenever the host's programs change. It does not change with an upgrade of
// crannog, or in a second call.
func TestRevisionFollowsPrograms(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		// A new file replaces the old one, as with a package manager.
		if err := os.WriteFile(path+".new", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	v := &revision{root: root}
	digest := func() string {
		t.Helper()
		got, err := v.digest()
		if err != nil || got == "" {
			t.Fatalf("digest: got %q, error %v", got, err)
		}
		if fresh, err := (&revision{root: root}).digest(); err != nil || fresh != got {
			t.Fatalf("another process sees %q, %v; want %q", fresh, err, got)
		}
		return got
	}
	write("usr/bin/node", "1")
	write("usr/local/bin/crannog", "1")
	write("var/lib/dpkg/status", "1")
	write("home/user/note", "1")
	before := digest()
	if again := digest(); again != before {
		t.Errorf("second digest: got %s, want %s", again, before)
	}
	write("usr/local/bin/crannog", "two")
	write("home/user/note", "two")
	if got := digest(); got != before {
		t.Error("the digest changed with a file that is not a program of the sandbox")
	}
	// The same list of packages, written again, counts as unchanged.
	write("var/lib/dpkg/status", "1")
	if err := os.Chtimes(filepath.Join(root, "var/lib/dpkg/status"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := digest(); got != before {
		t.Error("the digest changed with a time alone")
	}
	for _, change := range []func(){
		func() { write("usr/bin/node", "two") },
		func() { write("usr/local/lib/python3.11/dist-packages/numpy", "") },
		func() { write("var/lib/dpkg/status", "two") },
		func() { write("usr/lib/x86_64-linux-gnu/libc.so.6", "1") },
	} {
		change()
		if got := digest(); got == before {
			t.Error("the digest did not change with a program")
		} else {
			before = got
		}
	}
}

func BenchmarkRevision(b *testing.B) {
	v := &revision{root: "/"}
	if _, err := v.digest(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := v.digest(); err != nil {
			b.Fatal(err)
		}
	}
}

// A later process reads nothing that an earlier one has read, except what has changed since or
// could have changed unnoticed.
func TestRevisionUsesStoredSums(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	bin := filepath.Join(root, "usr/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "node"), []byte("1"), 0o755); err != nil {
		t.Fatal(err)
	}
	digest := func(dir string) string {
		t.Helper()
		got, err := (&revision{root: root, dir: dir}).digest()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	// A change of a moment ago is not stored.
	digest(dir)
	if text, err := os.ReadFile(filepath.Join(dir, sumsName)); err != nil || string(text) != "{}" {
		t.Errorf("stored %s (%v), want nothing yet", text, err)
	}
	age := func(by time.Duration) {
		t.Helper()
		if err := os.Chtimes(bin, time.Time{}, time.Now().Add(-by)); err != nil {
			t.Fatal(err)
		}
	}
	age(time.Hour)
	before := digest(dir)
	// The file changes in place, so its directory does not: the stored checksum is used.
	if err := os.WriteFile(filepath.Join(bin, "node"), []byte("22"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := digest(dir); got != before {
		t.Errorf("got %s, want the stored %s", got, before)
	}
	if got := digest(t.TempDir()); got == before {
		t.Error("without stored checksums the digest is the same")
	}
	age(time.Minute)
	after := digest(dir)
	if after == before {
		t.Error("the digest is the same although the directory has changed")
	}
	// Damage costs only time.
	if err := os.WriteFile(filepath.Join(dir, sumsName), []byte(`{"usr`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := digest(dir); got != after {
		t.Errorf("with a damaged file: got %s, want %s", got, after)
	}
}
