package advisory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

// statement is an advisory about one package, with the JSON of its ranges and versions.
func statement(id, ecosystem, name, rest string) string {
	return fmt.Sprintf(`{"id":%q,"modified":"2026-01-01T00:00:00Z","affected":[{"package":{"ecosystem":%q,"name":%q},%s}]}`, id, ecosystem, name, rest)
}

func mustParse(t *testing.T, text string) *parsedAdvisory {
	t.Helper()
	a, err := parse([]byte(text))
	if err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return a
}

// affected reports whether an advisory affects a version.
func affected(t *testing.T, text string, e packages.Ecosystem, name, version string, releases ...string) bool {
	t.Helper()
	r := mustParse(t, text).records[e][nameOf(e, name)]
	if r == nil {
		return false
	}
	return len(parsePackage(e, []record{*r}).Find(version, releases)) > 0
}

func events(kind string, list ...string) string {
	var parts []string
	for i := 0; i < len(list); i += 2 {
		parts = append(parts, fmt.Sprintf(`{%q:%q}`, list[i], list[i+1]))
	}
	return fmt.Sprintf(`"ranges":[{"type":%q,"events":[%s]}]`, kind, strings.Join(parts, ","))
}

func TestRangesOfEachEcosystem(t *testing.T) {
	type versions map[string]bool
	for name, c := range map[string]struct {
		ecosystem, name string
		ours            packages.Ecosystem
		rest            string
		versions        versions
	}{
		"npm": {"npm", "a", packages.NPM, events("SEMVER", "introduced", "1.2.0", "fixed", "1.10.0"), versions{
			"1.1.9": false, "1.2.0": true, "1.9.9": true, "1.10.0-beta.1": true, "1.10.0": false, "2.0.0": false,
		}},
		"npm, two ranges, unordered": {"npm", "a", packages.NPM, events("SEMVER", "fixed", "3.0.1", "introduced", "0", "introduced", "3.0.0", "fixed", "2.5.0"), versions{
			"0.0.1": true, "2.4.9": true, "2.5.0": false, "3.0.0": true, "3.0.1": false,
		}},
		"npm, last affected":            {"npm", "a", packages.NPM, events("SEMVER", "introduced", "0", "last_affected", "1.4.2"), versions{"1.4.2": true, "1.4.3": false}},
		"go":                            {"Go", "example.com/m", packages.Go, events("SEMVER", "introduced", "0", "fixed", "0.3.8"), versions{"v0.3.7": true, "v0.3.8": false, "v0.3.8-0.20210101000000-abcdefabcdef": true, "v2.0.0+incompatible": false}},
		"pypi":                          {"PyPI", "Some_Name", packages.PyPI, events("ECOSYSTEM", "introduced", "0", "fixed", "2.0rc1"), versions{"1.9.post1": true, "2.0a1": true, "2.0rc1": false, "2.0": false}},
		"crates":                        {"crates.io", "a_b", packages.Crates, events("SEMVER", "introduced", "0.0.0-0", "fixed", "0.9.0"), versions{"0.8.9": true, "0.9.0": false}},
		"maven":                         {"Maven", "org.acme:a", packages.Maven, events("ECOSYSTEM", "introduced", "2.0-beta9", "fixed", "2.15.0"), versions{"2.0-beta8": false, "2.0-beta9": true, "2.14.1": true, "2.15.0": false}},
		"debian":                        {"Debian:12", "openssl", packages.Apt, events("ECOSYSTEM", "introduced", "0", "fixed", "3.0.11-1~deb12u2"), versions{"3.0.11-1~deb12u1": true, "3.0.11-1~deb12u2": false, "1:1.0": false}},
		"a range that cannot be read":   {"npm", "a", packages.NPM, events("SEMVER", "introduced", "0", "fixed", "soon"), versions{"1.0.0": true, "99.0.0": true}},
		"an unknown kind of range":      {"npm", "a", packages.NPM, events("PHASE", "introduced", "0", "fixed", "1.0.0"), versions{"2.0.0": true}},
		"a range without a beginning":   {"npm", "a", packages.NPM, events("SEMVER", "fixed", "1.0.0"), versions{"2.0.0": true}},
		"a version that cannot be read": {"npm", "a", packages.NPM, events("SEMVER", "introduced", "0", "fixed", "1.0.0"), versions{"latest": true, "": true}},
		"commits are ignored":           {"npm", "a", packages.NPM, `"versions":["1.0.0"],` + events("GIT", "introduced", "0"), versions{"1.0.0": true, "1.0.1": false}},
		"nothing about versions":        {"npm", "a", packages.NPM, events("GIT", "introduced", "0"), versions{"1.0.0": true}},
		"listed versions":               {"PyPI", "a", packages.PyPI, `"versions":["1.0","2.0.0","dog"]`, versions{"1.0.0": true, "2": true, "dog": true, "1.0.1": false, "cat": false}},
		"listed beside a range": {"npm", "a", packages.NPM, `"versions":["1.0.0","5.0.0"],` + events("SEMVER", "introduced", "0", "fixed", "2.0.0"), versions{
			"1.0.0": true, "5.0.0": true, "5.0.1": false,
		}},
	} {
		text := statement("GHSA-1", c.ecosystem, c.name, c.rest)
		for v, want := range c.versions {
			if got := affected(t, text, c.ours, c.name, v); got != want {
				t.Errorf("%s: %s is affected: %v, want %v", name, v, got, want)
			}
		}
		if affected(t, text, c.ours, c.name+"x", "1.9.0") {
			t.Errorf("%s: another package is affected", name)
		}
	}
}

func TestNamesAreCompared(t *testing.T) {
	for _, c := range []struct {
		osv, name string
		ours      packages.Ecosystem
		asked     string
		want      bool
	}{
		{"PyPI", "Zope.Interface", packages.PyPI, "zope-interface", true},
		{"crates.io", "a_b", packages.Crates, "A-b", true},
		{"npm", "a_b", packages.NPM, "a-b", false},
		{"Maven:https://repo.example", "g:a", packages.Maven, "g:a", true},
		{"RubyGems", "a", packages.NPM, "a", false},
		{"Ubuntu:Pro:FIPS:22.04:LTS", "a", packages.Apt, "a", false},
	} {
		if got := affected(t, statement("A-1", c.osv, c.name, `"versions":["1.0.0"]`), c.ours, c.asked, "1.0.0"); got != c.want {
			t.Errorf("%s %s for %s: affected: %v, want %v", c.osv, c.name, c.asked, got, c.want)
		}
	}
}

func TestOnlyTheReleaseOfAPackageCounts(t *testing.T) {
	fixed := events("ECOSYSTEM", "introduced", "0", "fixed", "2.0-1")
	for release, c := range map[string]struct {
		asked []string
		want  bool
	}{
		"Debian:12":            {[]string{"Debian:12"}, true},
		"Debian:11":            {[]string{"Debian:12"}, false},
		"Ubuntu:22.04:LTS":     {[]string{"Ubuntu:22.04"}, true},
		"Ubuntu:Pro:18.04:LTS": {[]string{"Ubuntu:18.04"}, true},
		"Ubuntu:24.04:LTS":     {[]string{"Debian:12"}, false},
		"Debian:13":            {[]string{"Debian:12", "Debian:13"}, true},
		"Debian:10":            {[]string{"Debian"}, true}, // a suite without a number
		"Debian:9":             {nil, true},                // an archive of someone else
	} {
		if got := affected(t, statement("A-1", release, "a", fixed), packages.Apt, "a", "1.0-1", c.asked...); got != c.want {
			t.Errorf("an advisory about %s for %v: affected: %v, want %v", release, c.asked, got, c.want)
		}
	}
}

func TestSeverities(t *testing.T) {
	vector := func(kind, score string) string {
		return fmt.Sprintf(`"severity":[{"type":%q,"score":%q}]`, kind, score)
	}
	for rest, want := range map[string]packages.Severity{
		`"database_specific":{"severity":"CRITICAL"}`: packages.SeverityCritical,
		`"database_specific":{"severity":"MODERATE"},` + vector("CVSS_V3", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"): packages.SeverityModerate,
		`"database_specific":{"severity":7}`:                                                 packages.SeverityUnknown,
		`"database_specific":"text"`:                                                         packages.SeverityUnknown,
		vector("CVSS_V3", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"):                    packages.SeverityCritical,
		vector("CVSS_V3", "CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"):                    packages.SeverityHigh,
		vector("CVSS_V4", "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N"): packages.SeverityCritical,
		vector("CVSS_V2", "AV:N/AC:M/Au:N/C:N/I:P/A:N"):                                      packages.SeverityModerate,
		vector("Ubuntu", "negligible"):                                                       packages.SeverityLow,
		vector("CVSS_V3", "CVSS:3.1/AV:X"):                                                   packages.SeverityUnknown,
		`"x":1`:                                                                              packages.SeverityUnknown,
	} {
		text := strings.Replace(statement("GHSA-1", "npm", "a", `"versions":["1.0.0"]`), `{"id"`, "{"+rest+`,"id"`, 1)
		if got := mustParse(t, text).records[packages.NPM]["a"].severity(); got != want {
			t.Errorf("%s: got %s, want %s", rest, got, want)
		}
	}
	if got := mustParse(t, statement("MAL-2026-1", "npm", "a", `"versions":["1.0.0"]`)).records[packages.NPM]["a"].severity(); got != packages.SeverityMalware {
		t.Errorf("malware: got %s", got)
	}
	unmaintained := statement("RUSTSEC-1", "crates.io", "a", `"versions":["1.0.0"],"database_specific":{"informational":"unmaintained"}`)
	if got := mustParse(t, unmaintained).records[packages.Crates]["a"].severity(); got != packages.SeverityLow {
		t.Errorf("an unmaintained crate: got %s, want low", got)
	}
}

// The databases of Go and Python state no severity, but advisories about the same vulnerability do.
func TestSeverityComesFromAliases(t *testing.T) {
	list := []record{
		{ID: "GO-1", Aliases: []string{"CVE-1", "GHSA-1"}, Affects: []affect{{All: true}}},
		{ID: "GHSA-1", Severity: "low", Affects: []affect{{Versions: []string{"9.0.0"}}}},
		{ID: "GO-2", Aliases: []string{"CVE-2"}, Affects: []affect{{All: true}}},
	}
	found := parsePackage(packages.Go, list).Find("v1.0.0", nil)
	if len(found) != 2 || found[0].ID != "GO-2" || found[0].Severity != packages.SeverityUnknown || found[1].Severity != packages.SeverityLow {
		t.Errorf("got %+v, want GO-2 unknown and GO-1 low", found)
	}
}

func TestParseRejectsInvalidAdvisories(t *testing.T) {
	many := strings.Repeat(`{"introduced":"1.0.0"},`, maxEvents) + `{"introduced":"1.0.0"}`
	for name, text := range map[string]string{
		"no JSON":        `id: a`,
		"no id":          `{"affected":[]}`,
		"a hostile id":   `{"id":"GHSA-1\u001b[2J"}`,
		"a sentence":     `{"id":"GHSA-1), all is well"}`,
		"a hostile name": statement("A-1", "npm", "a\u202eb", `"versions":["1"]`),
		"no name":        statement("A-1", "npm", "", `"versions":["1"]`),
		"many events":    statement("A-1", "npm", "a", `"ranges":[{"type":"SEMVER","events":[`+many+`]}]`),
		"a long version": statement("A-1", "npm", "a", `"versions":["`+strings.Repeat("1", maxText+1)+`"]`),
		"another type":   `{"id":"A-1","affected":{}}`,
	} {
		if a, err := parse([]byte(text)); err == nil {
			t.Errorf("%s: parse returned %+v, want an error", name, a)
		}
	}
	if a := mustParse(t, `{"id":"A-1","withdrawn":"2026-01-01T00:00:00Z"}`); !a.withdrawn {
		t.Error("a withdrawn advisory counts")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(statement("GHSA-1", "npm", "a", events("SEMVER", "introduced", "0", "fixed", "1.0.0"))), "1.0.0")
	f.Add([]byte(statement("GHSA-1", "PyPI", "a", `"versions":["1!2.0.dev1+x"],`+events("ECOSYSTEM", "introduced", "1.0", "last_affected", "2.0"))), "2.0")
	f.Add([]byte(statement("DSA-1", "Debian:12", "a", events("ECOSYSTEM", "introduced", "0", "fixed", "1:2.0-1~deb12u1"))), "2.0-1")
	f.Add([]byte(statement("GHSA-1", "Maven", "g:a", events("ECOSYSTEM", "introduced", "1.0-alpha-1", "fixed", "2.0.Final"))), "1.0-SNAPSHOT")
	f.Add([]byte(statement("GO-1", "Go", "m", events("SEMVER", "introduced", "0"))), "v0.0.0-20200101000000-abcdefabcdef")
	f.Add([]byte(statement("RUSTSEC-1", "crates.io", "a", `"severity":[{"type":"CVSS_V3","score":"CVSS:3.1/AV:N"}],"versions":["1"]`)), "1.0.0")
	f.Fuzz(func(t *testing.T, text []byte, version string) {
		a, err := parse(text)
		if err != nil {
			return
		}
		for e, list := range a.records {
			for _, r := range list {
				for _, found := range parsePackage(e, []record{*r}).Find(version, nil) {
					if !printable(found.ID) || len(found.Fixed) > maxFixed {
						t.Errorf("found %+v", found)
					}
				}
			}
		}
	})
}

// A zip's directory takes much more memory than its bytes, so it is not read if it is too long.
func TestZipWithTooManyFilesIsRefused(t *testing.T) {
	for n, want := range map[int]bool{maxRecords: true, maxRecords + 1: false} {
		// The odd piece shifts signatures over the borders of what is read at once.
		text := "odd" + strings.Repeat(string(zipCentral), n)
		if err := countEntries(strings.NewReader(text)); (err == nil) != want {
			t.Errorf("%d entries: got %v, want them accepted: %v", n, err, want)
		}
	}
}
