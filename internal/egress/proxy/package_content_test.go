package proxy

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

// Each sandbox's own policy decides about what a package contains, and the audit entry names it.
func TestContentOfPackagesIsEnforced(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", serveRegistry(registryHost), registryHost)
	cache := newPackageCache(t)
	with := func(c *Config) { c.Packages = cache }
	// The files of this registry are no archives.
	const file = "https://" + registryHost + "/a/-/a-1.0.0.tgz"
	for _, c := range []struct {
		settings string
		code     int
		verdict  string
		findings int
	}{
		{"cache: [npm]", 200, packages.Passed, 0},
		{"cache: [npm], content: report", 200, packages.Passed, 1},
		{"cache: [npm], content: refuse", 403, packages.Refused, 1},
		{`cache: [npm], content: refuse, tolerated: ["npm:a@1.*"]`, 200, packages.Passed, 1},
	} {
		s := w.newSandbox(registryPolicy(c.settings), with)
		code, text := s.get(file)
		if code != c.code || code == 200 && text != "a 1.0.0" {
			t.Errorf("%s: got %d %s, want %d", c.settings, code, text, c.code)
		}
		all := s.records.all()
		last := all[len(all)-1]
		if p := last.Package; p == nil || p.Verdict != c.verdict || len(p.Findings) != c.findings {
			t.Errorf("%s: the entry is %+v, want the verdict %s and %d findings", c.settings, p, c.verdict, c.findings)
		}
		if code == 403 && (last.Rule != packages.RuleContent || !strings.Contains(text, "package_content") || !strings.Contains(text, "unreadable: ")) {
			t.Errorf("%s: got the rule %s and %s, want %s with the finding", c.settings, last.Rule, text, packages.RuleContent)
		}
	}
}
