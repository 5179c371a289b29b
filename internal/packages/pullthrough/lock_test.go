package pullthrough_test

import (
	"crypto/sha1" //nolint:gosec // the weak digest of a registry is what the tests are about
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

func digestOf(t *testing.T, text string) packages.Digest {
	t.Helper()
	d, ok := packages.ParseDigest(text)
	if !ok {
		t.Fatalf("%q is not a digest", text)
	}
	return d
}

func sha256Of(text string) packages.Digest {
	d, _ := packages.HexDigest("sha256", hexSum(text))
	return d
}

func sha512Of(text string) packages.Digest {
	sum := sha512.Sum512([]byte(text))
	return packages.Digest{Algorithm: "sha512", Sum: string(sum[:])}
}

func sha1Of(text string) packages.Digest {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return packages.Digest{Algorithm: "sha1", Sum: string(sum[:])}
}

// locked requires lockfiles that have these digests, by version and part.
func locked(entries map[string][]packages.Digest) func(*pullthrough.Request) {
	return func(r *pullthrough.Request) {
		r.Lock = func(a packages.Artifact, part string) (*packages.Locks, *packages.Denial) {
			if d := entries[a.Version+part]; d != nil {
				return &packages.Locks{Layer: "project", Digests: d}, nil
			}
			return nil, &packages.Denial{Rule: packages.RuleLockfile, Layer: "project", Reason: a.String() + part + " is in no lockfile of the workspace"}
		}
	}
}

// wantMismatch checks the refusal of a file whose digest is another one than the lockfile's.
func wantMismatch(t *testing.T, what string, err error, digests ...packages.Digest) {
	t.Helper()
	stop, ok := errors.AsType[*pullthrough.Refusal](err)
	if !ok || stop.Code != "package_integrity" || stop.Rule != packages.RuleLockfile || stop.Layer != "project" || stop.Status != 403 || stop.Fact.Verdict != packages.Refused {
		t.Errorf("%s: got %v, want package_integrity by %s", what, err, packages.RuleLockfile)
		return
	}
	for _, d := range digests {
		if !strings.Contains(stop.Reason, d.String()) {
			t.Errorf("%s: the reason %q does not name %s", what, stop.Reason, d)
		}
	}
}

// Attack: a registry replaces a published version, and its own digest with it.
func TestFileMustHaveDigestOfLockfile(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "replaced", 90 * day})
	const path = "/a/-/a-1.0.0.tgz"
	c := pullthrough.New(s, time.Now)
	wrong, right := sha512Of("original"), sha512Of("replaced")
	_, _, err := get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {wrong}}))
	wantMismatch(t, "the registry's digest", err, wrong, right)
	if n := r.total(); n != 1 {
		t.Errorf("the registry got %d requests, want only that for the document", n)
	}
	// Controls: without the setting the file passes, and then the cache has it.
	if text, _, err := get(t, c, r, path); err != nil || text != "replaced" {
		t.Fatalf("without lockfiles: got %q, %v", text, err)
	}
	_, _, err = get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {wrong}}))
	wantMismatch(t, "a file that the cache has", err, wrong, right)
	if text, a, err := get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {wrong, right}})); err != nil || text != "replaced" || !a.Fact.Cached {
		t.Errorf("one of two digests: got %q %+v (%v), want the file", text, a.Fact, err)
	}
	_, _, err = get(t, c, r, path, locked(map[string][]packages.Digest{"2.0.0": {right}}))
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Code != "package_denied" || stop.Status != 403 || stop.Rule != packages.RuleLockfile {
		t.Errorf("another version: got %v, want package_denied", err)
	}
	_, _, err = get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {}}))
	wantMismatch(t, "a version without digests", err)
}

// Attack: the registry has only a weak digest, or one of another kind, which says nothing about
// that of the lockfile. The content is compared before a byte is passed on.
func TestDigestOfOtherAlgorithmIsComputed(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	weak := sha1Of("content")
	r.set("/a", []byte(`{"name":"a","versions":{"1.0.0":{"dist":{"tarball":"`+r.URL+`/a/-/a-1.0.0.tgz","shasum":"`+hex.EncodeToString([]byte(weak.Sum))+`"}}}}`))
	r.set("/a/-/a-1.0.0.tgz", []byte("content"))
	const path = "/a/-/a-1.0.0.tgz"
	for _, warm := range []bool{false, true} {
		c := pullthrough.New(s, time.Now)
		for _, other := range []packages.Digest{sha512Of("other"), sha256Of("other")} {
			_, _, err := get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {other}}))
			want := sha512Of("content")
			if other.Algorithm == "sha256" {
				want = sha256Of("content")
			}
			wantMismatch(t, "another content", err, other, want)
		}
		for _, good := range []packages.Digest{sha512Of("content"), sha256Of("content"), weak} {
			if text, a, err := get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {good}})); err != nil || text != "content" || !a.Fact.Cached {
				t.Errorf("%s: got %q %+v (%v), want the file from the cache", good.Algorithm, text, a.Fact, err)
			}
		}
		// The weak digest of one lockfile does not replace the strong one of another.
		_, _, err := get(t, c, r, path, locked(map[string][]packages.Digest{"1.0.0": {weak, sha512Of("other")}}))
		wantMismatch(t, "a weak digest beside a strong one", err, sha512Of("other"))
		if warm && r.total() != 2 {
			t.Errorf("the registry got %d requests, want 2", r.total())
		}
	}
}

func TestGoModuleMustHaveSumOfLockfile(t *testing.T) {
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day})
	_, zipSum := moduleZip(t, "v1.0.0", "package a")
	_, otherSum := moduleZip(t, "v1.0.0", "package other")
	modSum := hash1(t, map[string]string{"go.mod": modText})
	const base = "/example.test/a/@v/v1.0.0"
	good := map[string][]packages.Digest{"v1.0.0": {digestOf(t, zipSum)}, "v1.0.0/go.mod": {digestOf(t, modSum)}}
	onlyMod := map[string][]packages.Digest{"v1.0.0/go.mod": {digestOf(t, modSum)}}
	bad := map[string][]packages.Digest{"v1.0.0": {digestOf(t, otherSum)}, "v1.0.0/go.mod": {digestOf(t, otherSum)}}
	permit := func(r *pullthrough.Request) { r.Unverified = func(packages.Artifact) bool { return true } }
	// Once with the checksum database, and once with a module that it does not know.
	for _, known := range []bool{true, false} {
		if !known {
			clear(p.sums)
			s = newStorage(t)
		}
		c := goCache(t, p, s)
		for range 2 { // the second time with a warm cache
			for _, ext := range []string{".info", ".mod", ".zip"} {
				if _, _, err := get(t, c, p.registry, base+ext, isGo, permit, locked(good)); err != nil {
					t.Errorf("known %v: %s: %v", known, ext, err)
				}
			}
			for _, ext := range []string{".mod", ".zip"} {
				_, _, err := get(t, c, p.registry, base+ext, isGo, permit, locked(bad))
				wantMismatch(t, ext, err, digestOf(t, otherSum))
			}
			if _, _, err := get(t, c, p.registry, base+".mod", isGo, permit, locked(onlyMod)); err != nil {
				t.Errorf("known %v: go.mod of a module whose archive is not locked: %v", known, err)
			}
			_, _, err := get(t, c, p.registry, base+".zip", isGo, permit, locked(onlyMod))
			if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Code != "package_denied" {
				t.Errorf("known %v: archive that is not locked: got %v, want package_denied", known, err)
			}
		}
	}
}

// The digest of a wheel is the lockfile's, and that of its metadata is only in the index.
func TestMetadataBelongsToItsWheel(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.project(simpleJSON, version{"1.0.0", "one", 90 * day})
	c := pullthrough.New(s, time.Now)
	const wheel = "/packages/aa/six-1.0.0-py3-none-any.whl"
	for name, d := range map[string]packages.Digest{"the same algorithm": sha256Of("one"), "another algorithm": sha512Of("one")} {
		for path, want := range map[string]string{"": "one", ".metadata": "Name: six 1.0.0"} {
			if text, _, err := get(t, c, r, wheel+path, of(packages.PyPI), locked(map[string][]packages.Digest{"1.0.0": {d}})); err != nil || text != want {
				t.Errorf("%s: got %q (%v), want %q", name, text, err, want)
			}
		}
	}
	for _, path := range []string{"", ".metadata"} {
		_, _, err := get(t, c, r, wheel+path, of(packages.PyPI), locked(map[string][]packages.Digest{"1.0.0": {sha256Of("other")}}))
		wantMismatch(t, path, err, sha256Of("one"), sha256Of("other"))
	}
	_, _, err := get(t, c, r, wheel, of(packages.PyPI), locked(map[string][]packages.Digest{"1.0.0": {sha512Of("other")}}))
	wantMismatch(t, "a wheel with another algorithm", err, sha512Of("one"))
}

// Lists of an archive are about many packages, so no lockfile names them. The packages need one.
func TestListsNeedNoLockfile(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.debian(t, 30*day, version{"1.0", "one", 0})
	c, this, none := pullthrough.New(s, time.Now), of(packages.Apt), locked(nil)
	for _, path := range []string{"/debian/dists/bookworm/InRelease", "/debian/dists/bookworm/main/binary-amd64/Packages"} {
		if _, _, err := get(t, c, r, path, this, none); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	const deb = "/debian/pool/main/h/hello/hello_1.0_amd64.deb"
	_, _, err := get(t, c, r, deb, this, none)
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleLockfile {
		t.Errorf("package: got %v, want a refusal by %s", err, packages.RuleLockfile)
	}
	if _, _, err := get(t, c, r, deb, this); err != nil {
		t.Errorf("package without the setting: %v", err)
	}
}
