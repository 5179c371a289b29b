package pullthrough_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

// advise imports an advisory about the versions of a package from 2.0.0 on and before 3.0.0.
func (s *storage) advise(t *testing.T, id, severity, ecosystem, name string) {
	t.Helper()
	text := fmt.Sprintf(`{"id":%q,"aliases":["CVE-1"],"modified":"2026-01-01T00:00:00Z","database_specific":{"severity":%q},
		"affected":[{"package":{"ecosystem":%q,"name":%q},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"2.0.0"},{"fixed":"3.0.0"}]}]}]}`, id, severity, ecosystem, name)
	if _, err := advisory.Open(s.dir).ImportFrom(t.Context(), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// advised sets the rule for versions with advisories.
func advised(level packages.Severity, accepted ...string) func(*pullthrough.Request) {
	return func(r *pullthrough.Request) {
		r.Advisories = &packages.AdvisoryRule{Level: level, Layer: "task", Accepted: func(id string) bool { return slices.Contains(accepted, id) }}
	}
}

// judged are the ecosystems with a version 1.0.0 and an affected version 2.0.0.
var judged = map[string]struct{ osv, name string }{"crates": {"crates.io", "serde"}, "maven": {"Maven", "org.acme:a"}, "pypi": {"PyPI", "Six"}}

func TestVersionsWithAdvisoriesAreRefused(t *testing.T) {
	for name, e := range protocols {
		t.Run(name, func(t *testing.T) {
			r, s := newRegistry(t), newStorage(t)
			e.publish(t, r)
			refusesAffected(t, r, s, e.ecosystem, judged[name].osv, judged[name].name, e.document, e.old, e.younger)
		})
	}
	t.Run("npm", func(t *testing.T) {
		r, s := newRegistry(t), newStorage(t)
		r.npm("a", version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", 90 * day})
		refusesAffected(t, r, s, packages.NPM, "npm", "a", "/a", "/a/-/a-1.0.0.tgz", "/a/-/a-2.0.0.tgz")
	})
}

// refusesAffected checks a registry that has the versions 1.0.0 and 2.0.0 of a package.
func refusesAffected(t *testing.T, r *registry, s *storage, e packages.Ecosystem, osv, name, document, old, affected string) {
	t.Helper()
	c, this := pullthrough.New(s, time.Now), of(e)
	// Without a database, nothing passes.
	for _, path := range []string{document, old} {
		_, _, err := get(t, c, r, path, this, advised(packages.SeverityMalware))
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleAdvisories || stop.Layer != "task" || !strings.Contains(stop.Reason, "crannog cache advisories import") {
			t.Errorf("%s without a database: got %v, want a refusal with a hint", path, err)
		}
	}
	if r.total() != 0 {
		t.Errorf("the registry got %d requests before a database was imported", r.total())
	}
	s.advise(t, "GHSA-1", "HIGH", osv, name)

	text, a, err := get(t, c, r, document, this, advised(packages.SeverityHigh))
	if err != nil || !strings.Contains(text, "1.0.0") || strings.Contains(text, "2.0.0") || !slices.Equal(a.Fact.Withheld, []string{"2.0.0"}) || !slices.Equal(a.Fact.Advisories, []string{"GHSA-1"}) {
		t.Errorf("document: got %q %+v (%v), want only 1.0.0", text, a.Fact, err)
	}
	if _, a, err := get(t, c, r, old, this, advised(packages.SeverityLow)); err != nil || len(a.Fact.Advisories) != 0 {
		t.Errorf("a version without advisories: got %+v (%v), want it", a.Fact, err)
	}
	_, _, err = get(t, c, r, affected, this, advised(packages.SeverityHigh))
	stop, ok := errors.AsType[*pullthrough.Refusal](err)
	if !ok || stop.Status != 403 || stop.Rule != packages.RuleAdvisories || !slices.Equal(stop.Fact.Advisories, []string{"GHSA-1"}) || stop.Fact.Verdict != packages.Refused {
		t.Fatalf("an affected version: got %v, want a refusal with status 403", err)
	}
	for _, part := range []string{"GHSA-1", "high", "3.0.0", "task layer"} {
		if !strings.Contains(stop.Reason, part) {
			t.Errorf("the reason %q lacks %q", stop.Reason, part)
		}
	}
	for what, rule := range map[string]func(*pullthrough.Request){
		"a higher level": advised(packages.SeverityCritical), "its ID": advised(packages.SeverityLow, "GHSA-1"), "an alias": advised(packages.SeverityLow, "CVE-1"),
	} {
		text, a, err := get(t, c, r, affected, this, rule)
		if err != nil || text != "two" || !slices.Equal(a.Fact.Advisories, []string{"GHSA-1"}) || a.Fact.Verdict != packages.Passed {
			t.Errorf("tolerated because of %s: got %q %+v (%v), want it with the advisory in its entry", what, text, a.Fact, err)
		}
	}
	if text, a, err := get(t, c, r, affected, this); err != nil || text != "two" || a.Fact.Advisories != nil {
		t.Errorf("without the rule: got %q %+v (%v), want it", text, a.Fact, err)
	}
	// The version is refused also when it is in the cache, and malware at each level.
	s.advise(t, "MAL-1", "", osv, name)
	_, _, err = get(t, c, r, affected, this, advised(packages.SeverityMalware))
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || !strings.Contains(stop.Reason, "MAL-1") || strings.Contains(stop.Reason, "GHSA-1") {
		t.Errorf("malware in the cache: got %v, want a refusal because of MAL-1", err)
	}
	damage(t, s, e)
	for _, path := range []string{document, old} {
		_, _, err = get(t, c, r, path, this, advised(packages.SeverityMalware))
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleAdvisories || !strings.Contains(stop.Reason, "damaged") {
			t.Errorf("%s with a damaged database: got %v, want a refusal", path, err)
		}
	}
}

// damage cuts off the end of a database.
func damage(t *testing.T, s *storage, e packages.Ecosystem) {
	t.Helper()
	path := filepath.Join(s.dir, store.DirName, store.AdvisoryFile(e))
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An unknown severity could be any, but malware is known.
func TestUnknownSeverityIsRefused(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"2.0.0", "two", 90 * day})
	s.advise(t, "GHSA-1", "", "npm", "a")
	c := pullthrough.New(s, time.Now)
	_, _, err := get(t, c, r, "/a/-/a-2.0.0.tgz", advised(packages.SeverityCritical))
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || !strings.Contains(stop.Reason, "GHSA-1 (unknown") {
		t.Errorf("at the level critical: got %v, want a refusal", err)
	}
	if _, a, err := get(t, c, r, "/a/-/a-2.0.0.tgz", advised(packages.SeverityMalware)); err != nil || len(a.Fact.Advisories) != 1 {
		t.Errorf("at the level malware: got %+v (%v), want it", a.Fact, err)
	}
	_, _, err = get(t, c, r, "/a", advised(packages.SeverityCritical))
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Status != 403 || stop.Rule != packages.RuleAdvisories {
		t.Errorf("a document without versions left: got %v, want a refusal", err)
	}
}

// Maven reads the model of each version that something depends on, also of those that it does not
// install. A model has no code.
func TestModelsOfAffectedVersionsPass(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.artifact(version{"2.0.0", "two", 90 * day})
	s.advise(t, "GHSA-1", "CRITICAL", "Maven", "org.acme:a")
	c, this := pullthrough.New(s, time.Now), of(packages.Maven)
	const base = "/maven2/org/acme/a/2.0.0/a-2.0.0"
	if _, a, err := get(t, c, r, base+".pom", this, advised(packages.SeverityLow)); err != nil || !slices.Equal(a.Fact.Advisories, []string{"GHSA-1"}) {
		t.Errorf("model: got %+v (%v), want it with the advisory in its entry", a.Fact, err)
	}
	if _, _, err := get(t, c, r, base+".jar", this, advised(packages.SeverityLow)); err == nil {
		t.Error("the archive of an affected version was served")
	}
	s.advise(t, "MAL-1", "", "Maven", "org.acme:a")
	if _, _, err := get(t, c, r, base+".pom", this, advised(packages.SeverityLow)); err == nil {
		t.Error("the model of malware was served")
	}
}

// Go reads the go.mod of each version in the module graph, also of those that it does not build.
func TestGoModulesWithAdvisoriesAreRefused(t *testing.T) {
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day}, version{"v2.0.0", "package a // 2", 90 * day})
	s.advise(t, "GO-1", "HIGH", "Go", "example.test/a")
	c := goCache(t, p, s)
	const base = "/example.test/a/@v/"
	text, a, err := get(t, c, p.registry, base+"list", isGo, advised(packages.SeverityLow))
	if err != nil || text != "v1.0.0\n" || !slices.Equal(a.Fact.Advisories, []string{"GO-1"}) {
		t.Errorf("list: got %q %+v (%v), want only v1.0.0", text, a.Fact, err)
	}
	for file, served := range map[string]bool{"v1.0.0.zip": true, "v2.0.0.info": true, "v2.0.0.mod": true, "v2.0.0.zip": false} {
		_, _, err := get(t, c, p.registry, base+file, isGo, advised(packages.SeverityLow))
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); ok == served || ok && stop.Rule != packages.RuleAdvisories {
			t.Errorf("%s: got %v, want it served: %v", file, err, served)
		}
	}
	if _, _, err := get(t, c, p.registry, base+"v2.0.0.zip", isGo, advised(packages.SeverityCritical)); err != nil {
		t.Errorf("at a higher level: got %v, want the archive", err)
	}
	s.advise(t, "MAL-1", "", "Go", "example.test/a")
	if _, _, err := get(t, c, p.registry, base+"v2.0.0.mod", isGo, advised(packages.SeverityLow)); err == nil {
		t.Error("the go.mod of malware was served")
	}
}

// Advisories about Debian are about source packages and releases.
func TestDebianPackagesWithAdvisoriesAreRefused(t *testing.T) {
	const list, old, affected = "/debian/dists/bookworm/main/binary-amd64/Packages", "/debian/pool/main/h/hello/hello_1.0_amd64.deb", "/debian/pool/main/h/hello/hello_2.5_amd64.deb"
	r, s := newRegistry(t), newStorage(t)
	r.debian(t, 30*day, version{"1.0", "one", 0}, version{"2.5", "two", 0})
	c, this := pullthrough.New(s, time.Now), of(packages.Apt)
	if _, _, err := get(t, c, r, list, this, advised(packages.SeverityLow)); err == nil {
		t.Error("without a database, a list was served")
	}
	s.advise(t, "DSA-1", "HIGH", "Debian:12", "hello-source")
	if _, _, err := get(t, c, r, list, this, advised(packages.SeverityLow)); err != nil {
		t.Fatal(err)
	}
	if text, _, err := get(t, c, r, old, this, advised(packages.SeverityLow)); err != nil || text != "one" {
		t.Errorf("a version before the affected ones: got %q (%v), want it", text, err)
	}
	_, _, err := get(t, c, r, affected, this, advised(packages.SeverityLow))
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleAdvisories || !strings.Contains(stop.Reason, "DSA-1") {
		t.Errorf("an affected version: got %v, want a refusal", err)
	}
	if text, _, err := get(t, c, r, affected, this, advised(packages.SeverityCritical)); err != nil || text != "two" {
		t.Errorf("at a higher level: got %q (%v), want it", text, err)
	}
}
