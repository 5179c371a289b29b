// Package advisory owns databases of known vulnerabilities and malware: reading them in OSV's
// format, storing them in a compact form beside the package cache, and finding the advisories about
// one version. Servers and commands write the databases. The egress gateway only reads them.
package advisory

import (
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

// Limits of what a database may have. Its publisher is trusted with what it says, but a download
// could have been replaced.
const (
	maxText     = 1 << 10 // of IDs, names and versions
	maxAliases  = 64
	maxAffected = 4096 // packages of an advisory
	maxRanges   = 1024 // of a package in an advisory
	maxEvents   = 4096 // of a range
	maxVersions = 100_000
)

// record is an advisory, limited to one package.
type record struct {
	ID       string    `json:"id"`
	Aliases  []string  `json:"aliases,omitempty"`
	Severity string    `json:"severity"`
	Modified time.Time `json:"modified,omitzero"`
	Affects  []affect  `json:"affects"`
}

// affect names versions of a package.
type affect struct {
	// Release is the release of a distribution, such as Debian:12. It is empty in other ecosystems.
	Release string `json:"release,omitempty"`
	// All is set if the versions cannot be determined. Then each version counts as affected.
	All      bool      `json:"all,omitempty"`
	Ranges   [][]event `json:"ranges,omitempty"`
	Versions []string  `json:"versions,omitempty"`
}

// event is a point in a range of versions. Exactly one field is set.
type event struct {
	Introduced string `json:"i,omitempty"`
	Fixed      string `json:"f,omitempty"`
	Last       string `json:"l,omitempty"`
}

func (e event) version() string { return e.Introduced + e.Fixed + e.Last }

// severity returns the severity of a record.
func (r record) severity() packages.Severity {
	s, _ := packages.ParseSeverity(r.Severity)
	return s
}

// ecosystemOf returns the ecosystem of the cache for one of OSV, and the release if it is a
// distribution.
func ecosystemOf(osv string) (e packages.Ecosystem, release string, ok bool) {
	base, rest, _ := strings.Cut(osv, ":")
	switch base {
	case "npm":
		return packages.NPM, "", true
	case "Go":
		return packages.Go, "", true
	case "PyPI":
		return packages.PyPI, "", true
	case "crates.io":
		return packages.Crates, "", true
	case "Maven":
		return packages.Maven, "", true
	case "Debian":
		return packages.Apt, strings.TrimSuffix(base+":"+rest, ":"), true
	case "Ubuntu":
		// Such as Ubuntu:22.04:LTS and Ubuntu:Pro:18.04:LTS. Other variants, such as FIPS, have
		// versions of their own, which cannot be compared with those of the archive.
		parts := strings.Split(strings.TrimPrefix(rest, "Pro:"), ":")
		if rest != "" && (parts[0] == "" || strings.Trim(parts[0], "0123456789.") != "") {
			return "", "", false
		}
		return packages.Apt, strings.TrimSuffix(base+":"+parts[0], ":"), true
	}
	return "", "", false
}

// nameOf returns the form of a package's name that names of the same package share.
func nameOf(e packages.Ecosystem, name string) string {
	switch e {
	case packages.PyPI:
		return packages.PythonName(name)
	case packages.Crates:
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	default:
		return name
	}
}

// sameRelease reports whether what is known about one release holds for another one. An unknown
// release could be any, and so could a distribution without a number.
func sameRelease(a, b string) bool {
	if a == b || a == "" || b == "" {
		return true
	}
	familyA, numberA, _ := strings.Cut(a, ":")
	familyB, numberB, _ := strings.Cut(b, ":")
	return familyA == familyB && (numberA == "" || numberB == "")
}

// printable reports whether a text has 1 to maxText characters of printable ASCII. Others could
// write control characters into messages.
func printable(s string) bool {
	return s != "" && len(s) <= maxText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// printables removes texts that are not printable.
func printables(list []string, limit int) []string {
	var out []string
	for _, s := range list {
		if printable(s) && len(out) < limit && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func invalid(format string, args ...any) *fault.Error {
	return fault.Newf(fault.Invalid, "advisory_invalid", format, args...)
}
