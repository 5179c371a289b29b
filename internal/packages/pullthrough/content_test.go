package pullthrough_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/packagetest"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// zipball returns a zip with one file.
func zipball(t testing.TB, name, text string) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create(name)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// contentRule has the policy's rule for the content of packages.
func contentRule(rule packages.ContentRule) func(*pullthrough.Request) {
	return func(r *pullthrough.Request) {
		rule.Layer = "project"
		r.Content = &rule
	}
}

// wantFinding checks the refusal of a file because of its content.
func wantFinding(t *testing.T, what string, err error, finding string) {
	t.Helper()
	stop, ok := errors.AsType[*pullthrough.Refusal](err)
	if !ok || stop.Code != "package_content" || stop.Status != 403 || stop.Rule != packages.RuleContent || stop.Layer != "project" || stop.Hidden {
		t.Errorf("%s: got %v, want package_content", what, err)
		return
	}
	if f := stop.Fact; f.Verdict != packages.Refused || len(f.Findings) != 1 || !strings.HasPrefix(f.Findings[0], finding+": ") || !strings.Contains(stop.Reason, f.Findings[0]) {
		t.Errorf("%s: got the reason %q and the fact %+v, want %s", what, stop.Reason, f, finding)
	}
}

func TestContentIsInspectedBeforeItIsPassedOn(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	good, bad := packagetest.Tarball(t, "package/index.js", "x"), packagetest.Tarball(t, "package/../../evil", "x")
	r.npm("a", version{"1.0.0", good, 90 * day}, version{"2.0.0", bad, 90 * day})
	r.npm("lodahs", version{"1.0.0", good, 90 * day})
	const one, two, near = "/a/-/a-1.0.0.tgz", "/a/-/a-2.0.0.tgz", "/lodahs/-/lodahs-1.0.0.tgz"
	refuse, report := contentRule(packages.ContentRule{Refuse: true}), contentRule(packages.ContentRule{})
	// With a cold cache, with a warm one that remembers, and with a warm one of a new process.
	c := pullthrough.New(s, time.Now)
	for _, when := range []string{"cold", "warm", "restarted"} {
		if when == "restarted" {
			c = pullthrough.New(s, time.Now)
		}
		if text, a, err := get(t, c, r, one, refuse); err != nil || text != good || a.Fact.Findings != nil {
			t.Errorf("%s: a file without findings: got %+v, %v", when, a.Fact, err)
		}
		_, _, err := get(t, c, r, two, refuse)
		wantFinding(t, when+": a file with a finding", err, "escape")
		_, _, err = get(t, c, r, near, refuse)
		wantFinding(t, when+": a name like another", err, "look-alike")
		if text, a, err := get(t, c, r, two, report); err != nil || text != bad || len(a.Fact.Findings) != 1 || a.Fact.Verdict != packages.Passed || !a.Fact.Cached {
			t.Errorf("%s: reported: got %+v, %v", when, a.Fact, err)
		}
		if text, a, err := get(t, c, r, two); err != nil || text != bad || a.Fact.Findings != nil {
			t.Errorf("%s: without the setting: got %+v, %v", when, a.Fact, err)
		}
		tolerated := contentRule(packages.ContentRule{Refuse: true, Tolerated: func(a packages.Artifact) bool { return a.String() == "npm:a@2.0.0" }})
		if text, a, err := get(t, c, r, two, tolerated); err != nil || text != bad || len(a.Fact.Findings) != 1 {
			t.Errorf("%s: tolerated: got %+v, %v", when, a.Fact, err)
		}
		_, _, err = get(t, c, r, near, tolerated)
		wantFinding(t, when+": another package is tolerated", err, "look-alike")
		known := contentRule(packages.ContentRule{Refuse: true, Known: func(packages.Ecosystem) []string { return []string{"lodahs"} }})
		if _, a, err := get(t, c, r, near, known); err != nil || a.Fact.Findings != nil {
			t.Errorf("%s: a name that the lockfile has: got %+v, %v", when, a.Fact, err)
		}
	}
}

// The file of each ecosystem is read as the archive that its clients unpack.
func TestArchivesOfEcosystemsAreInspected(t *testing.T) {
	for name, c := range map[string]struct {
		ecosystem packages.Ecosystem
		pack      func(t testing.TB, name, text string) string
		publish   func(r *registry, content string)
		file      string
	}{
		"crates": {packages.Crates, packagetest.Tarball, func(r *registry, content string) { r.crate(version{"1.0.0", content, 90 * day}) }, "/crates/serde/serde-1.0.0.crate"},
		"wheel":  {packages.PyPI, zipball, func(r *registry, content string) { r.project(simpleJSON, version{"1.0.0", content, 90 * day}) }, "/packages/aa/six-1.0.0-py3-none-any.whl"},
		"maven":  {packages.Maven, zipball, func(r *registry, content string) { r.artifact(version{"1.0.0", content, 90 * day}) }, "/maven2/org/acme/a/1.0.0/a-1.0.0.jar"},
	} {
		refuse := contentRule(packages.ContentRule{Refuse: true})
		for _, entry := range []string{"a/b", "../b"} {
			r := newRegistry(t)
			text := c.pack(t, entry, "x")
			c.publish(r, text)
			got, _, err := get(t, pullthrough.New(newStorage(t), time.Now), r, c.file, of(c.ecosystem), refuse)
			if entry == "../b" {
				wantFinding(t, name, err, "escape")
			} else if err != nil || got != text {
				t.Errorf("%s: a file without findings: %v", name, err)
			}
		}
	}
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day}, version{"v1.1.0", "\x7fELF\x02\x01" + strings.Repeat("\x00", 100), 90 * day})
	c, refuse := goCache(t, p, s), contentRule(packages.ContentRule{Refuse: true})
	for _, file := range []string{"v1.0.0.zip", "v1.0.0.mod", "v1.0.0.info", "v1.1.0.mod", "v1.1.0.info"} {
		if _, _, err := get(t, c, p.registry, "/example.test/a/@v/"+file, isGo, refuse); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	_, _, err := get(t, c, p.registry, "/example.test/a/@v/v1.1.0.zip", isGo, refuse)
	wantFinding(t, "a module with a program", err, "executable")

	// The metadata of a wheel and a Maven model are no archives.
	r := newRegistry(t)
	r.project(simpleJSON, version{"1.0.0", "no archive", 90 * day})
	r.artifact(version{"1.0.0", "no archive", 90 * day})
	for path, e := range map[string]packages.Ecosystem{"/packages/aa/six-1.0.0-py3-none-any.whl": packages.PyPI, "/maven2/org/acme/a/1.0.0/a-1.0.0.pom": packages.Maven} {
		if e == packages.PyPI {
			_, _, err := get(t, pullthrough.New(s, time.Now), r, path, of(e), refuse)
			wantFinding(t, path, err, "unreadable")
			path += ".metadata"
		}
		r.kind = simpleJSON
		if _, _, err := get(t, pullthrough.New(s, time.Now), r, path, of(e), refuse); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A file is inspected as what the request says, also if it was inspected as something else before.
func TestInspectionDependsOnTheKindOfFile(t *testing.T) {
	program := zipball(t, "a/x", "\x7fELF\x02\x01"+strings.Repeat("\x00", 100))
	r, s := newRegistry(t), newStorage(t)
	r.artifact(version{"1.0.0", program, 90 * day})
	c, refuse := pullthrough.New(s, time.Now), contentRule(packages.ContentRule{Refuse: true})
	if _, _, err := get(t, c, r, "/maven2/org/acme/a/1.0.0/a-1.0.0.jar", of(packages.Maven), refuse); err != nil {
		t.Errorf("a jar with a program: %v", err)
	}
	r.project(simpleJSON, version{"1.0.0", program, 90 * day})
	_, _, err := get(t, c, r, "/packages/aa/six-1.0.0-py3-none-any.whl", of(packages.PyPI), refuse)
	wantFinding(t, "a pure wheel with the same bytes", err, "executable")
}
