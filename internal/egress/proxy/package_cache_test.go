package proxy

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

// testStorage stores packages as the egress gateway and its controller do.
type testStorage struct {
	*store.Reader
	store *store.Store
	dir   string
}

func (s testStorage) Create() (*os.File, error) { return os.CreateTemp(s.dir, "fetched-*") }

func (s testStorage) Keep(_ context.Context, e store.Entry, f *os.File) error {
	return s.store.Put(e, io.NewSectionReader(f, 0, e.Size))
}

func newPackageCache(t *testing.T) PackageCache {
	t.Helper()
	cache, _ := newPackageCacheIn(t)
	return cache
}

// newPackageCacheIn returns a cache and its state directory.
func newPackageCacheIn(t *testing.T) (cache PackageCache, state string) {
	t.Helper()
	s := testStorage{dir: t.TempDir()}
	var err error
	if s.store, err = store.Open(s.dir, 0); err != nil {
		t.Fatal(err)
	}
	dir, err := store.OpenDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	s.Reader = store.NewReader(dir)
	return pullthrough.New(s, time.Now).Serve, s.dir
}

// serveRegistry returns a registry that has two versions of the package "a": an old one, and one
// that was published an hour ago.
func serveRegistry(host string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		file := func(version string) string {
			sum := sha512.Sum512([]byte("a " + version))
			return fmt.Sprintf(`%q: {"dist": {"tarball": "https://%s/a/-/a-%s.tgz", "integrity": "sha512-%s"}}`, version, host, version, base64.StdEncoding.EncodeToString(sum[:]))
		}
		switch r.URL.Path {
		case "/a":
			fmt.Fprintf(w, `{"name": "a", "dist-tags": {"latest": "2.0.0"}, "versions": {%s, %s}, "time": {"1.0.0": "2020-01-01T00:00:00Z", "2.0.0": %q}}`,
				file("1.0.0"), file("2.0.0"), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		case "/a/-/a-1.0.0.tgz", "/a/-/a-2.0.0.tgz":
			_, _ = io.WriteString(w, "a "+strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/a/-/a-"), ".tgz"))
		default:
			_, _ = io.WriteString(w, "passed on")
		}
	}
}

const registryHost = "registry.npmjs.org"

func registryPolicy(settings string) string {
	return "level: minimal\npackages: {" + settings + "}\nnetwork: {unlisted: deny, hosts: [{host: " + registryHost + ", encoded_slash: true, rules: [{methods: [GET, HEAD], do: allow}, {paths: [\"/secret/**\"], do: deny}]}]}\n"
}

// Promise P61 (docs/reference/promises.md): no part of a sandbox's request reaches the registry or
// another sandbox, and each sandbox's own policy decides.
func TestPackageCacheIsSharedSafely(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", serveRegistry(registryHost), registryHost)
	cache := newPackageCache(t)
	with := func(c *Config) { c.Packages = cache }
	const old, young = "https://" + registryHost + "/a/-/a-1.0.0.tgz", "https://" + registryHost + "/a/-/a-2.0.0.tgz"

	first := w.newSandbox(registryPolicy("cache: [npm]"), with)
	header := http.Header{"Authorization": {"Bearer of-this-sandbox"}, "X-Forwarded-Host": {"evil.test"}, "Cookie": {"a=b"}}
	if code, text := first.do(http.MethodGet, old+"?poison=1", "", header); code != 200 || text != "a 1.0.0" {
		t.Fatalf("the first sandbox's installation: got %d %s, want 200", code, text)
	}
	for _, s := range up.log() {
		if s.Auth != "" || s.Header.Get("Cookie") != "" || s.Header.Get("X-Forwarded-Host") != "" || strings.Contains(s.Path, "poison") {
			t.Errorf("the registry got a part of the sandbox's request: %+v", s)
		}
	}
	// The document and the file were fetched.
	if all := first.records.all(); all[len(all)-1].Package == nil || all[len(all)-1].Package.Fetched < 300 || all[len(all)-1].Received != int64(len("a 1.0.0")) {
		t.Errorf("the first entry is %+v with %+v, want the fetched bytes", all[len(all)-1], all[len(all)-1].Package)
	}
	requests := len(up.log())
	second := w.newSandbox(registryPolicy("cache: [npm], min_age: 24h"), with)
	if code, text := second.get(old); code != 200 || text != "a 1.0.0" || len(up.log()) != requests {
		t.Errorf("another sandbox: got %d %s with %d further requests, want the cached package", code, text, len(up.log())-requests)
	}
	last := second.records.all()[len(second.records.all())-1]
	if p := last.Package; p == nil || !p.Cached || p.Fetched != 0 || p.Version != "1.0.0" || p.Verdict != packages.Passed || !strings.HasPrefix(p.Hash, "sha512-") {
		t.Errorf("the entry is %+v, want one of a cached package that passed", last)
	}
	if code, text := second.get(young); code != 404 || !strings.Contains(text, "packages.min_age") || !strings.Contains(text, "npm:a@2.0.0") {
		t.Errorf("a version younger than min_age: got %d %s, want 404", code, text)
	}
	if code, text := second.get("https://" + registryHost + "/a"); code != 200 || strings.Contains(text, "a-2.0.0") || !strings.Contains(text, `"latest":"1.0.0"`) {
		t.Errorf("the package's document: got %d %s, want it without the young version", code, text)
	}
	if code, text := first.get(young); code != 200 || text != "a 2.0.0" {
		t.Errorf("the young version without min_age: got %d %s, want 200", code, text)
	}
	if code, _ := second.do(http.MethodHead, old, "", nil); code != 200 {
		t.Errorf("HEAD of a cached package: got %d, want 200", code)
	}
	if code, text := second.get("https://" + registryHost + "/-/ping"); code != 200 || text != "passed on" {
		t.Errorf("a request for no package: got %d %s, want it forwarded", code, text)
	}
}

func TestPackageRulesAreEnforced(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", serveRegistry(registryHost), registryHost)
	cache := newPackageCache(t)
	with := func(c *Config) { c.Packages = cache }
	const file = "https://" + registryHost + "/a/-/a-1.0.0.tgz"
	for settings, want := range map[string]int{
		`cache: [npm], deny: ["npm:a"]`:        403,
		`cache: [npm], deny: ["npm:a@1.*"]`:    403,
		`cache: [npm], deny: ["npm:a@2.*"]`:    200,
		`cache: [npm], allow: ["npm:b"]`:       403,
		`cache: [npm], allow: ["npm:a@2.0.0"]`: 403,
		`cache: [npm], allow: ["npm:*@1.0.0"]`: 200,
		`cache: [npm], min_age: 8760h`:         200,
		`deny: ["npm:a"]`:                      200, // without the cache the lists decide nothing
	} {
		if code, text := w.newSandbox(registryPolicy(settings), with).get(file); code != want {
			t.Errorf("%s: got %d %s, want %d", settings, code, text, want)
		}
	}
	requests := len(up.log())
	offline := w.newSandbox(registryPolicy("cache: [npm], offline: true"), with)
	if code, _ := offline.get(file); code != 200 {
		t.Errorf("a cached package while offline: got %d, want 200", code)
	}
	if code, text := offline.get("https://" + registryHost + "/b"); code != 504 || !strings.Contains(text, "packages.offline") || len(up.log()) != requests {
		t.Errorf("another package while offline: got %d %s, want 504", code, text)
	}
	// The network's rules apply too, and a policy with a cache needs one.
	if code, _ := w.newSandbox(registryPolicy("cache: [npm]"), with).get("https://" + registryHost + "/secret/-/secret-1.0.0.tgz"); code != 403 {
		t.Errorf("a path that the network's rules deny: got %d, want 403", code)
	}
	if code, _ := w.newSandbox(registryPolicy("cache: [npm]")).get(file); code != 503 {
		t.Errorf("without a cache: got %d, want 503", code)
	}
}

// lockedTo returns lockfiles that name the version 1.0.0 of the package "a" with the digest of a
// content.
func lockedTo(content string) func(c *Config) {
	sum := sha512.Sum512([]byte(content))
	set := &lockfile.Set{Files: 1, Entries: []lockfile.Entry{{
		Ecosystem: packages.NPM, Name: "a", Version: "1.0.0", Digests: []string{"sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
	}}}
	return func(c *Config) { c.Locked = set.Index() }
}

// With lockfile_only, only what the lockfiles name passes, also from the cache, and an update of the
// policy does not change what they name.
func TestOnlyLockedPackagesAreServed(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", serveRegistry(registryHost), registryHost)
	cache := newPackageCache(t)
	with := func(c *Config) { c.Packages = cache }
	const base = "https://" + registryHost + "/a"
	const locked, other = base + "/-/a-1.0.0.tgz", base + "/-/a-2.0.0.tgz"
	free := w.newSandbox(registryPolicy("cache: [npm]"), with)
	for _, file := range []string{locked, other} {
		if code, text := free.get(file); code != 200 {
			t.Fatalf("control: %s without lockfile_only: got %d %s", file, code, text)
		}
	}
	only := registryPolicy("cache: [npm], lockfile_only: true")
	s := w.newSandbox(only, with, lockedTo("a 1.0.0"))
	check := func(when string) {
		t.Helper()
		if code, text := s.get(locked); code != 200 || text != "a 1.0.0" {
			t.Errorf("%s: the locked version: got %d %s, want 200", when, code, text)
		}
		if code, text := s.get(base); code != 200 || strings.Contains(text, "a-2.0.0") || !strings.Contains(text, `"latest":"1.0.0"`) {
			t.Errorf("%s: the document: got %d %s, want only the locked version", when, code, text)
		}
		if code, text := s.get(other); code != 403 || !strings.Contains(text, "is in no lockfile of the workspace") || !strings.Contains(text, "1.0.0") || !strings.Contains(text, "packages.lockfile_only") {
			t.Errorf("%s: another version: got %d %s, want 403 with the locked version", when, code, text)
		}
	}
	check("at first")
	if err := s.Update(compiled(t, registryPolicy("cache: [npm], lockfile_only: true, min_age: 1s")), nil); err != nil {
		t.Fatal(err)
	}
	check("after an update")
	tampered := w.newSandbox(only, with, lockedTo("what the project locked"))
	if code, text := tampered.get(locked); code != 403 || !strings.Contains(text, "package_integrity") || strings.Count(text, "sha512-") < 2 {
		t.Errorf("another digest than the lockfile's: got %d %s, want 403 package_integrity with both digests", code, text)
	}
	last := tampered.records.all()[len(tampered.records.all())-1]
	if last.Rule != packages.RuleLockfile || last.Package == nil || last.Package.Verdict != packages.Refused {
		t.Errorf("the entry is %+v, want a refusal by %s", last, packages.RuleLockfile)
	}
	if code, text := w.newSandbox(only, with).get(locked); code != 403 || !strings.Contains(text, "without a workspace") {
		t.Errorf("a sandbox without lockfiles: got %d %s, want 403 with the reason", code, text)
	}
	if code, text := w.newSandbox(registryPolicy(`cache: [npm], lockfile_only: true, unlocked: ["npm:a@2.*"]`), with).get(other); code != 200 {
		t.Errorf("a version that needs no lockfile: got %d %s, want 200", code, text)
	}
}
