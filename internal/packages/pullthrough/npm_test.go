package pullthrough_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

const day = 24 * time.Hour

func TestSecondInstallFetchesNothing(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day}, version{"1.1.0", "two", 60 * day})
	c := pullthrough.New(s, time.Now)
	for try := range 3 {
		if try == 2 {
			c = pullthrough.New(s, time.Now) // a new process
		}
		for path, want := range map[string]string{"/a/-/a-1.0.0.tgz": "one", "/a/-/a-1.1.0.tgz": "two", "/a": ""} {
			text, a, err := get(t, c, r, path)
			if err != nil || want != "" && text != want || a.Fact.Verdict != packages.Passed {
				t.Fatalf("%s: got %q and %+v, error %v, want %q", path, text, a.Fact, err, want)
			}
			if try > 0 && !a.Fact.Cached {
				t.Errorf("%s was fetched again", path)
			}
		}
		if r.total() != 3 {
			t.Errorf("try %d: the registry got %d requests, want 3", try, r.total())
		}
	}
	// A document is fetched again after DocumentLife.
	later := pullthrough.New(s, func() time.Time { return time.Now().Add(2 * pullthrough.DocumentLife) })
	if _, a, err := get(t, later, r, "/a"); err != nil || a.Fact.Cached || r.total() != 4 {
		t.Errorf("after DocumentLife: got %+v (%v) and %d requests, want a new request", a.Fact, err, r.total())
	}
}

func TestTamperedFileIsRefused(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day})
	r.set("/a/-/a-1.0.0.tgz", []byte("evil"))
	c := pullthrough.New(s, time.Now)
	_, _, err := get(t, c, r, "/a/-/a-1.0.0.tgz")
	stop, ok := errors.AsType[*pullthrough.Refusal](err)
	if !ok || stop.Rule != packages.RuleIntegrity || stop.Fact.Version != "1.0.0" || stop.Fact.Verdict != packages.Refused {
		t.Fatalf("got %v, want a refusal by %s", err, packages.RuleIntegrity)
	}
	list, err := s.List()
	if err != nil || slices.ContainsFunc(list, func(l store.Listed) bool { return l.Version != "" }) {
		t.Errorf("the tampered file was stored: List: got %+v, error %v", list, err)
	}
	r.set("/a/-/a-1.0.0.tgz", []byte("one"))
	if text, _, err := get(t, c, r, "/a/-/a-1.0.0.tgz"); err != nil || text != "one" {
		t.Errorf("correct file: got %q, %v", text, err)
	}
}

// If a registry changes the digest of a version, the old file must not be served. A file for which
// the registry has no digest is refused.
func TestFileMustMatchCurrentDigest(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day})
	if _, _, err := get(t, pullthrough.New(s, time.Now), r, "/a/-/a-1.0.0.tgz"); err != nil {
		t.Fatal(err)
	}
	r.npm("a", version{"1.0.0", "other", 90 * day})
	later := pullthrough.New(s, func() time.Time { return time.Now().Add(2 * pullthrough.DocumentLife) })
	if text, a, err := get(t, later, r, "/a/-/a-1.0.0.tgz"); err != nil || text != "other" || a.Fact.Cached {
		t.Errorf("changed digest: got %q %+v (%v), want the new file fetched", text, a.Fact, err)
	}
	r.set("/b", []byte(`{"name":"b","versions":{"1.0.0":{"dist":{"tarball":"`+r.URL+`/b/-/b-1.0.0.tgz"}}}}`))
	r.set("/b/-/b-1.0.0.tgz", []byte("b"))
	_, _, err := get(t, later, r, "/b/-/b-1.0.0.tgz")
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleIntegrity {
		t.Errorf("without a digest: got %v, want a refusal by %s", err, packages.RuleIntegrity)
	}
}

// young denies versions that are younger than a week.
func young(a packages.Artifact, v packages.Version, known bool) *packages.Denial {
	if known && packages.Young(v, 7*day, time.Now()) {
		return &packages.Denial{Rule: "packages.min_age", Reason: a.String() + " is too young", Hidden: true}
	}
	return nil
}

func TestYoungVersionLooksAbsent(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day}, version{"1.1.0", "two", day})
	r.npm("b", version{"1.0.0", "one", day})
	c := pullthrough.New(s, time.Now)
	gated := func(r *pullthrough.Request) { r.Gate = young }
	text, a, err := get(t, c, r, "/a", gated)
	if err != nil || a.Fact.Verdict != packages.Filtered || !slices.Equal(a.Fact.Withheld, []string{"1.1.0"}) || !strings.Contains(a.Notice, "npm:a@1.1.0 is too young") {
		t.Fatalf("got %+v (%v), want 1.1.0 withheld", a, err)
	}
	var d struct {
		Versions map[string]any    `json:"versions"`
		Tags     map[string]string `json:"dist-tags"`
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil || len(d.Versions) != 1 || d.Tags["latest"] != "1.0.0" {
		t.Errorf("got %s (%v), want only 1.0.0", text, err)
	}
	for _, path := range []string{"/a/-/a-1.1.0.tgz", "/b"} {
		_, _, err := get(t, c, r, path, gated)
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Status != 404 || stop.Rule != "packages.min_age" {
			t.Errorf("%s: got %v, want a refusal with status 404", path, err)
		}
		// Without the gate, the young version is served.
		if _, _, err := get(t, c, r, path); err != nil {
			t.Errorf("%s without the gate: %v", path, err)
		}
	}
	if _, _, err := get(t, c, r, "/a/-/a-1.0.0.tgz", gated); err != nil {
		t.Errorf("old version: got %v, want it served", err)
	}
}

func TestParallelRequestsFetchOnce(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day})
	const clients = 16
	c := pullthrough.New(s, time.Now)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if text, _, err := get(t, c, r, "/a/-/a-1.0.0.tgz"); err != nil || text != "one" {
				t.Errorf("got %q, %v; want the file", text, err)
			}
		})
	}
	all.Wait()
	if r.total() != 2 {
		t.Errorf("the registry got %d requests, want 2", r.total())
	}
}

func TestOfflineServesOnlyStoredPackages(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", 90 * day})
	if _, _, err := get(t, pullthrough.New(s, time.Now), r, "/a/-/a-1.0.0.tgz"); err != nil {
		t.Fatal(err)
	}
	before := r.total()
	c := pullthrough.New(s, func() time.Time { return time.Now().Add(90 * day) })
	offline := func(r *pullthrough.Request) { r.Offline = true }
	if text, _, err := get(t, c, r, "/a/-/a-1.0.0.tgz", offline); err != nil || text != "one" {
		t.Errorf("stored file: got %q, %v", text, err)
	}
	for _, path := range []string{"/a/-/a-2.0.0.tgz", "/b"} {
		_, _, err := get(t, c, r, path, offline)
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleOffline {
			t.Errorf("%s: got %v, want a refusal by %s", path, err, packages.RuleOffline)
		}
	}
	if r.total() != before {
		t.Errorf("the registry got %d requests, want none", r.total()-before)
	}
}

func TestOnlyPackagesAreServed(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 90 * day})
	r.set("/a/1.0.0", []byte("{}"))
	r.set("/a/-/hidden.tgz", []byte("evil"))
	r.set("/c", []byte(`{"name":"a","versions":{}}`))
	c := pullthrough.New(s, time.Now)
	if _, a, err := get(t, c, r, "/-/v1/search"); err != nil || !a.Pass {
		t.Errorf("search: got %+v (%v), want it passed on", a, err)
	}
	for path, code := range map[string]string{
		"/a/1.0.0": "package_request", "/a/-/hidden.tgz": "package_not_found", "/c": "package_document", "/missing": "package_not_found",
	} {
		_, _, err := get(t, c, r, path)
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Code != code {
			t.Errorf("%s: got %v, want %s", path, err, code)
		}
	}
}
