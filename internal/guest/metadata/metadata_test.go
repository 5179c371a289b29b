package metadata_test

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/metadata"
)

func TestFromHeader(t *testing.T) {
	h := http.Header{"X-Metadata-Author-Name": {"me"}, "X-Metadata-Empty": {""}, "X-Other": {"x"}, "X-Metadata": {"x"}}
	got, err := metadata.FromHeader(h)
	if err != nil || !maps.Equal(got, map[string]string{"author-name": "me", "empty": ""}) {
		t.Errorf("FromHeader: got %v, %v, want author-name and empty", got, err)
	}
	if got, err := metadata.FromHeader(http.Header{"Accept": {"x"}}); got != nil || err != nil {
		t.Errorf("header without metadata: got %v %v", got, err)
	}
	for name, h := range map[string]http.Header{
		"empty key":     {"X-Metadata-": {"x"}},
		"long key":      {"X-Metadata-" + strings.Repeat("k", 247): {"x"}},
		"two values":    {"X-Metadata-K": {"x", "y"}},
		"two spellings": {"X-Metadata-K": {"x"}, "x-metadata-k": {"y"}},
		"control":       {"X-Metadata-K": {"a\tb"}},
		"not ASCII":     {"X-Metadata-K": {"é"}},
		"too much":      {"X-Metadata-A": {strings.Repeat("x", 2048)}, "X-Metadata-B": {strings.Repeat("x", 2047)}},
	} {
		if got, err := metadata.FromHeader(h); err == nil {
			t.Errorf("%s: FromHeader accepted %v", name, got)
		}
	}
	fits := http.Header{"X-Metadata-A": {strings.Repeat("x", 4095)}, "X-Other": {strings.Repeat("x", 4096)}}
	if _, err := metadata.FromHeader(fits); err != nil {
		t.Errorf("metadata at the limit: %v", err)
	}
}

func TestReplaceAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Setxattr(path, "user.other", []byte("stays"), 0); err != nil {
		t.Fatal(err)
	}
	for _, set := range []map[string]string{{"a": "1", "b": ""}, {"b": "2", "c": strings.Repeat("x", 3000)}, nil, {"a": "again"}} {
		if err := metadata.Replace(int(f.Fd()), set); err != nil {
			t.Fatal(err)
		}
		if got := metadata.Read(path); !maps.Equal(got, set) {
			t.Errorf("Read: got %v, want %v", got, set)
		}
	}
	buf := make([]byte, 10)
	if n, err := unix.Getxattr(path, "user.other", buf); err != nil || string(buf[:n]) != "stays" {
		t.Errorf("another attribute was changed: %q, %v", buf[:max(n, 0)], err)
	}
	if got := metadata.Read(path + "nope"); got != nil {
		t.Errorf("Read of a missing file: got %v, want nil", got)
	}
}

func TestReplaceWithoutSupport(t *testing.T) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := metadata.Replace(int(f.Fd()), nil); err != nil {
		t.Errorf("Replace with an empty set: %v", err)
	}
	if err := metadata.Replace(int(f.Fd()), map[string]string{"a": "1"}); err == nil {
		t.Error("Replace returned no error without support for attributes")
	}
}

// A failed change is an error other than ErrUnsupported.
func TestFailedReplaceChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := metadata.Replace(int(f.Fd()), map[string]string{"a": "1"}); err != nil {
		t.Fatal(err)
	}
	long := map[string]string{"a": strings.Repeat("x", 64<<10+1)} // Linux's own limit is 64 KiB
	if err := metadata.Replace(int(f.Fd()), long); !errors.Is(err, unix.E2BIG) {
		t.Errorf("a value that is too long: %v", err)
	}
	if got := metadata.Read(path); !maps.Equal(got, map[string]string{"a": "1"}) {
		t.Errorf("the failed change left %v", got)
	}
	fd := int(f.Fd())
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := metadata.Replace(fd, nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("Replace of a closed file: got %v, want EBADF", err)
	}
}

func FuzzFromHeader(f *testing.F) {
	f.Add("X-Metadata-Key", "value", "x-metadata-KEY", "other")
	f.Add("X-Metadata-", "", "X-Metadata-é", "\x00")
	f.Add("x-metadata-a", strings.Repeat("x", 4096), "", "")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		set, err := metadata.FromHeader(http.Header{k1: {v1}, k2: {v2}})
		if err != nil {
			return
		}
		total := 0
		for key, value := range set {
			total += len(key) + len(value)
			if key == "" || len(key) > 246 || key != strings.ToLower(key) {
				t.Errorf("FromHeader accepted the key %q", key)
			}
			for _, c := range []byte(key + value) {
				if c < ' ' || c > '~' {
					t.Errorf("FromHeader accepted the byte %#x in %q: %q", c, key, value)
				}
			}
		}
		if total > 4096 {
			t.Errorf("FromHeader accepted %d bytes", total)
		}
	})
}
