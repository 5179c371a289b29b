package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/lockfile"
)

const emptySHA512 = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="

// testLocks are lockfiles with the versions 1.0.0 and 1.1.0 of the package a.
var testLocks = (&lockfile.Set{Files: 1, Entries: []lockfile.Entry{
	{Ecosystem: packages.NPM, Name: "a", Version: "1.0.0", Digests: []string{emptySHA512}},
	{Ecosystem: packages.NPM, Name: "a", Version: "1.1.0", Digests: []string{emptySHA512}},
}}).Index()

func npmVersion(name, version string) packages.Artifact {
	return packages.Artifact{Ecosystem: packages.NPM, Name: name, Version: version}
}

func allowEach(packages.Artifact, packages.Version, bool) *packages.Denial { return nil }

func TestLockfileOnlyInstallsLockedVersions(t *testing.T) {
	apt := packages.Artifact{Ecosystem: packages.Apt, Name: "hello", Version: "1.0"}
	for name, c := range map[string]struct {
		organisation, task string
		locks              *lockfile.Index
		a                  packages.Artifact
		reason             string // "" is allowed
	}{
		"without the setting":           {`cache: [npm]`, `publish: deny`, testLocks, npmVersion("b", "1.0.0"), ""},
		"locked":                        {`cache: [npm]`, `lockfile_only: true`, testLocks, npmVersion("a", "1.0.0"), ""},
		"name only":                     {`cache: [npm]`, `lockfile_only: true`, testLocks, npmVersion("a", ""), ""},
		"other version":                 {`cache: [npm]`, `lockfile_only: true`, testLocks, npmVersion("a", "2.0.0"), "npm:a@2.0.0 is in no lockfile of the workspace"},
		"other version names the right": {`cache: [npm]`, `lockfile_only: true`, testLocks, npmVersion("a", "2.0.0"), "a with 1.0.0, 1.1.0."},
		"other package":                 {`cache: [npm]`, `lockfile_only: true`, testLocks, npmVersion("b", ""), "npm:b is in no lockfile of the workspace"},
		"the task cannot switch it off": {`cache: [npm], lockfile_only: true`, `lockfile_only: false`, testLocks, npmVersion("b", ""), "organisation layer"},
		"no workspace":                  {`cache: [npm]`, `lockfile_only: true`, lockfile.None().Index(), npmVersion("a", "1.0.0"), "no workspace on the host"},
		"no set":                        {`cache: [npm]`, `lockfile_only: true`, nil, npmVersion("a", "1.0.0"), "created without a workspace"},
		"apt":                           {`cache: [apt]`, `lockfile_only: true`, testLocks, apt, "packages.unlocked"},
		"apt that is excepted":          {`cache: [apt]`, `lockfile_only: true, unlocked: ["apt:**"]`, testLocks, apt, ""},
		"an exception of one layer":     {`cache: [apt], lockfile_only: true, unlocked: ["apt:git"]`, `unlocked: ["apt:**"]`, testLocks, apt, "organisation layer"},
		"an exception of one version":   {`cache: [npm]`, `lockfile_only: true, unlocked: ["npm:b@2.*"]`, testLocks, npmVersion("b", "1.0.0"), "in no lockfile"},
		"the version that is excepted":  {`cache: [npm]`, `lockfile_only: true, unlocked: ["npm:b@2.*"]`, testLocks, npmVersion("b", "2.1.0"), ""},
		"the name of such a version":    {`cache: [npm]`, `lockfile_only: true, unlocked: ["npm:b@2.*"]`, testLocks, npmVersion("b", ""), ""},
	} {
		p := packagePolicy(t, c.organisation, c.task)
		d := p.LockedGate(allowEach, c.locks)(c.a, packages.Version{}, c.a.Version != "")
		switch {
		case c.reason == "" && d != nil:
			t.Errorf("%s: denied: %s", name, d.Reason)
		case c.reason != "" && (d == nil || d.Rule != packages.RuleLockfile || d.Hidden || !strings.Contains(d.Reason, c.reason)):
			t.Errorf("%s: got %+v, want a denial with %q", name, d, c.reason)
		}
	}
}

// The gate for lockfiles denies in addition to the other rules.
func TestLockedGateKeepsOtherRules(t *testing.T) {
	p := packagePolicy(t, `cache: [npm], deny: ["npm:a@1.0.0"]`, `lockfile_only: true`)
	gate := p.LockedGate(p.Gate(time.Now), testLocks)
	if d := gate(npmVersion("a", "1.0.0"), packages.Version{}, true); d == nil || d.Rule != policy.RuleForbidden {
		t.Errorf("a locked version that is denied: got %+v", d)
	}
	if d := gate(npmVersion("a", "1.1.0"), packages.Version{}, true); d != nil {
		t.Errorf("a locked version that is not denied: got %+v", d)
	}
}

func TestLockReturnsDigests(t *testing.T) {
	x := (&lockfile.Set{Entries: []lockfile.Entry{{Ecosystem: packages.Go, Name: "m", Version: "v1.0.0/go.mod", Digests: []string{"h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}}}}).Index()
	m := packages.Artifact{Ecosystem: packages.Go, Name: "m", Version: "v1.0.0"}
	p := packagePolicy(t, `cache: [go]`, `lockfile_only: true`)
	if l, d := p.Lock(m, "/go.mod", x); d != nil || l == nil || len(l.Digests) != 1 || l.Layer != policy.LayerTask {
		t.Errorf("a locked go.mod: got %+v %+v, want its sum", l, d)
	}
	if l, d := p.Lock(m, "", x); d == nil || l != nil || d.Rule != packages.RuleLockfile {
		t.Errorf("an archive of which only the go.mod is locked: got %+v %+v, want a denial", l, d)
	}
	for name, settings := range map[string]string{"without the setting": `publish: deny`, "excepted": `lockfile_only: true, unlocked: ["go:m@v1.*"]`} {
		if l, d := packagePolicy(t, `cache: [go]`, settings).Lock(m, "", x); l != nil || d != nil {
			t.Errorf("%s: got %+v %+v, want neither", name, l, d)
		}
	}
}

func TestLockfileSettingsAreCompared(t *testing.T) {
	plain, only := packagePolicy(t, `cache: [npm]`, `publish: deny`), packagePolicy(t, `cache: [npm], lockfile_only: true`, `publish: deny`)
	except, more := packagePolicy(t, `cache: [npm], lockfile_only: true, unlocked: ["npm:@acme/a"]`, `publish: deny`), packagePolicy(t, `cache: [npm], lockfile_only: true, unlocked: ["npm:@acme/**"]`, `publish: deny`)
	for name, c := range map[string]struct {
		before, after *policy.Policy
		wider         int
	}{
		"added": {plain, only, 0}, "removed": {only, plain, 1}, "added with exceptions": {plain, more, 0},
		"exceptions added": {only, except, 1}, "more exceptions": {except, more, 1}, "fewer exceptions": {more, except, 0}, "the same": {more, more, 0},
	} {
		if got := policy.Widen(c.before, c.after); len(got) != c.wider {
			t.Errorf("%s: got %q, want %d changes", name, got, c.wider)
		}
	}
	for settings, warns := range map[string]bool{
		`lockfile_only: true`: true, `unlocked: ["apt:**"], cache: [apt]`: true, `lockfile_only: true, cache: [npm]`: false, `lockfile_only: false`: false,
	} {
		d, err := policy.Parse([]byte("policy: v1\npackages: {" + settings + "}\n"))
		if err != nil {
			t.Fatal(err)
		}
		_, warnings, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
		if err != nil || (len(warnings) > 0) != warns {
			t.Errorf("%s: got the warnings %+v (%v), want some: %v", settings, warnings, err, warns)
		}
	}
	for _, bad := range []string{`unlocked: []`, `unlocked: [lodash]`, `unlocked: ["cpan:a"]`, `lockfile_only: maybe`} {
		if _, err := policy.Parse([]byte("policy: v1\npackages: {" + bad + "}\n")); err == nil {
			t.Errorf("Parse accepted the package setting %s", bad)
		}
	}
	if m := more.Document().Packages; m.LockfileOnly == nil || !*m.LockfileOnly || len(m.Unlocked) != 1 {
		t.Errorf("the whole policy has %+v, want the settings of lockfiles", m)
	}
}
