package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
)

// Each sandbox's own policy decides about advisories, and the audit entry names them.
func TestAdvisoriesOfPackagesAreEnforced(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", serveRegistry(registryHost), registryHost)
	cache, state := newPackageCacheIn(t)
	with := func(c *Config) { c.Packages = cache }
	const file = "https://" + registryHost + "/a/-/a-2.0.0.tgz"

	strict := w.newSandbox(registryPolicy("cache: [npm], advisories: high"), with)
	if code, text := strict.get(file); code != 403 || !strings.Contains(text, "crannog cache advisories import") {
		t.Errorf("without a database: got %d %s, want 403 with a hint", code, text)
	}
	const text = `{"id":"GHSA-1","modified":"2026-01-01T00:00:00Z","database_specific":{"severity":"HIGH"},"affected":[{"package":{"ecosystem":"npm","name":"a"},"ranges":[{"type":"SEMVER","events":[{"introduced":"2.0.0"},{"fixed":"2.0.1"}]}]}]}`
	if _, err := advisory.Open(state).ImportFrom(t.Context(), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	code, body := strict.get(file)
	if code != 403 || !strings.Contains(body, "GHSA-1 (high, fixed in 2.0.1)") || !strings.Contains(body, packages.RuleAdvisories) {
		t.Errorf("an affected version: got %d %s, want 403 with the advisory", code, body)
	}
	named := func(s *testSandbox, verdict string) {
		t.Helper()
		all := s.records.all()
		if p := all[len(all)-1].Package; p == nil || p.Verdict != verdict || !slices.Equal(p.Advisories, []string{"GHSA-1"}) {
			t.Errorf("the entry is %+v, want one with the verdict %s and the advisory", p, verdict)
		}
	}
	named(strict, packages.Refused)
	if code, text := strict.get("https://" + registryHost + "/a"); code != 200 || strings.Contains(text, "a-2.0.0") || !strings.Contains(text, "a-1.0.0") {
		t.Errorf("the package's document: got %d %s, want it without the affected version", code, text)
	}
	if code, text := strict.get("https://" + registryHost + "/a/-/a-1.0.0.tgz"); code != 200 {
		t.Errorf("a version without advisories: got %d %s, want 200", code, text)
	}
	for _, settings := range []string{"cache: [npm], advisories: critical", "cache: [npm], advisories: low, accepted: [GHSA-1]"} {
		s := w.newSandbox(registryPolicy(settings), with)
		if code, text := s.get(file); code != 200 {
			t.Errorf("%s: got %d %s, want 200", settings, code, text)
		}
		named(s, packages.Passed)
	}
}
