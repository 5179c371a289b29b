package pullthrough_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

func hexSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func ago(age time.Duration) string { return time.Now().Add(-age).UTC().Format(time.RFC3339) }

// crate publishes versions of the crate "serde".
func (r *registry) crate(list ...version) {
	var lines []string
	for _, v := range list {
		r.set("/crates/serde/serde-"+v.id+".crate", []byte(v.content))
		lines = append(lines, fmt.Sprintf(`{"name":"serde","vers":%q,"deps":[],"cksum":%q,"features":{},"yanked":false,"pubtime":%q}`, v.id, hexSum(v.content), ago(v.age)))
	}
	r.set("/se/rd/serde", []byte(strings.Join(lines, "\n")+"\n"))
}

// project publishes a wheel of each version of the project "six", as JSON or HTML.
func (r *registry) project(kind string, list ...version) {
	var entries []string
	r.kind = kind
	for _, v := range list {
		name := "six-" + v.id + "-py3-none-any.whl"
		r.set("/packages/aa/"+name, []byte(v.content))
		r.set("/packages/aa/"+name+".metadata", []byte("Name: six "+v.id))
		if kind == "text/html" {
			entries = append(entries, fmt.Sprintf(`<a href="../../packages/aa/%s#sha256=%s" data-core-metadata="sha256=%s">%s</a>`, name, hexSum(v.content), hexSum("Name: six "+v.id), name))
			continue
		}
		entries = append(entries, fmt.Sprintf(`{"filename":%q,"url":%q,"hashes":{"sha256":%q},"upload-time":%q,"requires-python":">=3","core-metadata":{"sha256":%q}}`,
			name, r.URL+"/packages/aa/"+name, hexSum(v.content), ago(v.age), hexSum("Name: six "+v.id)))
	}
	if kind == "text/html" {
		r.set("/simple/six/", []byte("<html><body>"+strings.Join(entries, "<br>")+"</body></html>"))
		return
	}
	r.set("/simple/six/", []byte(`{"meta":{"api-version":"1.1"},"name":"Six","versions":[],"files":[`+strings.Join(entries, ",")+`]}`))
}

// artifact publishes versions of the artifact org.acme:a.
func (r *registry) artifact(list ...version) {
	var text strings.Builder
	for _, v := range list {
		for _, ending := range []string{".jar", ".pom"} {
			at := "/maven2/org/acme/a/" + v.id + "/a-" + v.id + ending
			r.set(at, []byte(v.content))
			r.set(at+".sha256", []byte(hexSum(v.content)+"  a\n"))
			r.modified[at+".sha256"] = time.Now().Add(-v.age)
		}
		text.WriteString("<version>" + v.id + "</version>")
	}
	r.set("/maven2/org/acme/a/maven-metadata.xml", []byte("<metadata><groupId>org.acme</groupId><artifactId>a</artifactId><versioning><latest>2.0.0</latest><versions>"+text.String()+"</versions></versioning></metadata>"))
}

const simpleJSON = "application/vnd.pypi.simple.v1+json"

// debian publishes a suite with versions of the package "hello". Its list is from age ago.
func (r *registry) debian(t *testing.T, age time.Duration, list ...version) {
	t.Helper()
	var all strings.Builder
	for _, v := range list {
		file := "pool/main/h/hello/hello_" + v.id + "_amd64.deb"
		r.set("/debian/"+file, []byte(v.content))
		fmt.Fprintf(&all, "Package: hello\nSource: hello-source\nVersion: %s\nDescription: a: b\nFilename: %s\nSize: %d\nSHA256: %s\n\n", v.id, file, len(v.content), hexSum(v.content))
	}
	entries := all.String()
	const dir = "main/binary-amd64/"
	r.set("/debian/dists/bookworm/"+dir+"by-hash/SHA256/"+hexSum(entries), []byte(entries))
	text := fmt.Sprintf("Origin: Debian\nVersion: 12.5\nSuite: stable\nCodename: bookworm\nDate: %s\nAcquire-By-Hash: yes\nSHA256:\n %s %d %sPackages\n", time.Now().Add(-age).UTC().Format("Mon, 02 Jan 2006 15:04:05 MST"), hexSum(entries), len(entries), dir)
	r.set("/debian/dists/bookworm/InRelease", signedBy(t, archiveKey(), text))
}

func of(e packages.Ecosystem) func(*pullthrough.Request) {
	return func(r *pullthrough.Request) { r.Ecosystem = e }
}

// protocols are the ecosystems whose registries publish a digest of each file. Each publishes an
// old version 1.0.0 and a young 2.0.0.
var protocols = map[string]struct {
	ecosystem              packages.Ecosystem
	publish                func(t *testing.T, r *registry)
	document, old, younger string
}{
	"crates": {packages.Crates, func(_ *testing.T, r *registry) {
		r.crate(version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", day})
	}, "/se/rd/serde", "/crates/serde/serde-1.0.0.crate", "/crates/serde/serde-2.0.0.crate"},
	"maven": {packages.Maven, func(_ *testing.T, r *registry) {
		r.artifact(version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", day})
	}, "/maven2/org/acme/a/maven-metadata.xml", "/maven2/org/acme/a/1.0.0/a-1.0.0.jar", "/maven2/org/acme/a/2.0.0/a-2.0.0.jar"},
	"pypi": {packages.PyPI, func(_ *testing.T, r *registry) {
		r.project(simpleJSON, version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", day})
	}, "/simple/six/", "/packages/aa/six-1.0.0-py3-none-any.whl", "/packages/aa/six-2.0.0-py3-none-any.whl"},
}

func TestRegistriesWithDigests(t *testing.T) {
	for name, e := range protocols {
		t.Run(name, func(t *testing.T) {
			r, s := newRegistry(t), newStorage(t)
			e.publish(t, r)
			c, this := pullthrough.New(s, time.Now), of(e.ecosystem)
			for _, path := range []string{e.document, e.old, e.younger} {
				if _, a, err := get(t, c, r, path, this); err != nil || a.Fact.Verdict != packages.Passed {
					t.Fatalf("%s: got %+v (%v), want it", path, a.Fact, err)
				}
			}
			before := r.total()
			if text, a, err := get(t, pullthrough.New(s, time.Now), r, e.old, this); err != nil || text != "one" || !a.Fact.Cached || a.Fact.Version != "1.0.0" || r.total() != before {
				t.Errorf("again: got %q %+v (%v) and %d requests, want it from the cache", text, a.Fact, err, r.total()-before)
			}
			gated := func(r *pullthrough.Request) { r.Gate, r.Dated = young, true }
			text, a, err := get(t, c, r, e.document, this, gated)
			if err != nil || strings.Contains(text, "2.0.0") || !strings.Contains(text, "1.0.0") || len(a.Fact.Withheld) != 1 {
				t.Errorf("document: got %q %+v (%v), want only 1.0.0", text, a.Fact, err)
			}
			_, _, err = get(t, c, r, e.younger, this, gated)
			if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Status != 404 || stop.Rule != "packages.min_age" {
				t.Errorf("young file: got %v, want a refusal with status 404", err)
			}
			r.set(e.old, []byte("evil"))
			_, _, err = get(t, pullthrough.New(newStorage(t), time.Now), r, e.old, this)
			if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleIntegrity {
				t.Errorf("tampered file: got %v, want a refusal by %s", err, packages.RuleIntegrity)
			}
		})
	}
}

func TestSimpleIndexAsHTML(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.project("text/html", version{"1.0.0", "one", 90 * day})
	c := pullthrough.New(s, time.Now)
	text, _, err := get(t, c, r, "/simple/six/", of(packages.PyPI))
	if err != nil || !strings.Contains(text, r.URL+"/packages/aa/six-1.0.0-py3-none-any.whl#sha256="+hexSum("one")) {
		t.Errorf("index: got %q (%v), want a link with a digest", text, err)
	}
	for path, want := range map[string]string{"": "one", ".metadata": "Name: six 1.0.0"} {
		if text, _, err := get(t, c, r, "/packages/aa/six-1.0.0-py3-none-any.whl"+path, of(packages.PyPI)); err != nil || text != want {
			t.Errorf("%s: got %q (%v), want %q", path, text, err, want)
		}
	}
	// HTML has no times, so each version counts as young.
	_, _, err = get(t, c, r, "/simple/six/", of(packages.PyPI), func(r *pullthrough.Request) { r.Gate, r.Dated = young, true })
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Status != 404 {
		t.Errorf("without times: got %v, want a refusal", err)
	}
}

func TestDebianPackagesAreVerified(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.debian(t, 30*day, version{"1.0", "one", 0})
	c, this := pullthrough.New(s, time.Now), of(packages.Apt)
	const deb, list = "/debian/pool/main/h/hello/hello_1.0_amd64.deb", "/debian/dists/bookworm/main/binary-amd64/Packages"
	_, _, err := get(t, c, r, deb, this)
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Code != "package_not_found" || !strings.Contains(stop.Reason, "apt-get update") {
		t.Errorf("before a list was read: got %v, want package_not_found", err)
	}
	for _, path := range []string{"/debian/dists/bookworm/InRelease", list} {
		if _, a, err := get(t, c, r, path, this); err != nil || a.Fact.Verdict != packages.Passed {
			t.Fatalf("%s: got %+v (%v), want it", path, a.Fact, err)
		}
	}
	c = pullthrough.New(s, time.Now) // a new process knows the lists too
	text, a, err := get(t, c, r, deb, this)
	if err != nil || text != "one" || a.Fact.Name != "hello" || a.Fact.Version != "1.0" || !strings.HasPrefix(a.Fact.Hash, "sha256-") {
		t.Errorf("package: got %q %+v (%v), want it", text, a.Fact, err)
	}
	before := r.total()
	if _, a, err := get(t, c, r, deb, this); err != nil || !a.Fact.Cached || r.total() != before {
		t.Errorf("again: got %+v (%v), want it from the cache", a.Fact, err)
	}
	// The archive had the package when it made its list, so a list of last month proves its age.
	gated := func(r *pullthrough.Request) { r.Gate, r.Dated = young, true }
	if _, _, err := get(t, c, r, deb, this, gated); err != nil {
		t.Errorf("package of an old list with min_age: got %v, want it", err)
	}
	fresh := newRegistry(t)
	fresh.debian(t, time.Hour, version{"1.0", "one", 0})
	c = pullthrough.New(newStorage(t), time.Now)
	if _, _, err := get(t, c, fresh, list, this, gated); err != nil {
		t.Errorf("a list is about many packages: got %v, want it despite min_age", err)
	}
	_, _, err = get(t, c, fresh, deb, this, gated)
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != "packages.min_age" {
		t.Errorf("package of a new list with min_age: got %v, want a refusal", err)
	}
	for path, change := range map[string]string{deb: "evil", "/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/": ""} {
		tampered := newRegistry(t)
		tampered.debian(t, 30*day, version{"1.0", "one", 0})
		c = pullthrough.New(newStorage(t), time.Now)
		if change != "" {
			if _, _, err := get(t, c, tampered, list, this); err != nil {
				t.Fatal(err)
			}
			tampered.set(path, []byte(change))
		} else {
			path = list
			tampered.tamper("/by-hash/")
		}
		_, _, err := get(t, c, tampered, path, this)
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleIntegrity {
			t.Errorf("tampered %s: got %v, want a refusal by %s", path, err, packages.RuleIntegrity)
		}
	}
	if _, _, err := get(t, c, r, "/debian/dists/bookworm/main/Contents-amd64.gz", this); err == nil {
		t.Error("a file that the archive's list does not name was served")
	}
}

// Maven compares a list with its checksum, so the checksum must be that of the filtered list.
func TestChecksumOfFilteredMavenList(t *testing.T) {
	r := newRegistry(t)
	r.artifact(version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", day})
	c := pullthrough.New(newStorage(t), time.Now)
	gated := func(r *pullthrough.Request) { r.Gate, r.Dated, r.Ecosystem = young, true, packages.Maven }
	const list = "/maven2/org/acme/a/maven-metadata.xml"
	text, _, err := get(t, c, r, list, gated)
	if err != nil || strings.Contains(text, "2.0.0") {
		t.Fatalf("list: got %q (%v), want it without 2.0.0", text, err)
	}
	if sum, _, err := get(t, c, r, list+".sha256", gated); err != nil || sum != hexSum(text) {
		t.Errorf("checksum: got %q (%v), want %s", sum, err, hexSum(text))
	}
	if sum, _, err := get(t, c, r, "/maven2/org/acme/a/1.0.0/a-1.0.0.jar.sha256", gated); err != nil || sum != hexSum("one") {
		t.Errorf("checksum of a file: got %q (%v), want %s", sum, err, hexSum("one"))
	}
	r.set("/maven2/org/acme/a/3.0.0/a-3.0.0.jar", []byte("three"))
	_, _, err = get(t, c, r, "/maven2/org/acme/a/3.0.0/a-3.0.0.jar", of(packages.Maven))
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleIntegrity {
		t.Errorf("file without a checksum: got %v, want a refusal by %s", err, packages.RuleIntegrity)
	}
}
