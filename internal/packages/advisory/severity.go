package advisory

import (
	"strings"

	cvss20 "github.com/pandatix/go-cvss/20"
	cvss30 "github.com/pandatix/go-cvss/30"
	cvss31 "github.com/pandatix/go-cvss/31"
	cvss40 "github.com/pandatix/go-cvss/40"

	"github.com/crannog/crannog/internal/packages"
)

// malwarePrefix begins the IDs of advisories about packages that are malware.
const malwarePrefix = "MAL-"

// severityWords are what databases call severities.
var severityWords = map[string]packages.Severity{
	"negligible": packages.SeverityLow, "low": packages.SeverityLow,
	"moderate": packages.SeverityModerate, "medium": packages.SeverityModerate,
	"high": packages.SeverityHigh, "important": packages.SeverityHigh, "critical": packages.SeverityCritical,
}

// wordSeverity returns the severity for a word of a database.
func wordSeverity(word string) packages.Severity {
	return severityWords[strings.ToLower(strings.TrimSpace(word))]
}

// scoreSeverity returns the severity of a score by the scale of CVSS. A score of zero is unknown: a
// vulnerability without effect is none.
func scoreSeverity(score float64) packages.Severity {
	switch {
	case score >= 9:
		return packages.SeverityCritical
	case score >= 7:
		return packages.SeverityHigh
	case score >= 4:
		return packages.SeverityModerate
	case score > 0:
		return packages.SeverityLow
	}
	return packages.SeverityUnknown
}

// maxVector limits the length of a CVSS vector.
const maxVector = 512

// vectorSeverity returns the severity of a CVSS vector, or unknown if it is not valid.
func vectorSeverity(vector string) packages.Severity {
	if len(vector) > maxVector {
		return packages.SeverityUnknown
	}
	switch version, _, _ := strings.Cut(vector, "/"); version {
	case "CVSS:4.0":
		if v, err := cvss40.ParseVector(vector); err == nil {
			return scoreSeverity(v.Score())
		}
	case "CVSS:3.1":
		if v, err := cvss31.ParseVector(vector); err == nil {
			return scoreSeverity(v.BaseScore())
		}
	case "CVSS:3.0":
		if v, err := cvss30.ParseVector(vector); err == nil {
			return scoreSeverity(v.BaseScore())
		}
	default:
		if v, err := cvss20.ParseVector(vector); err == nil {
			return scoreSeverity(v.BaseScore())
		}
	}
	return packages.SeverityUnknown
}

// severityOf returns the severity of an advisory for one of its packages. A word of the database
// comes before the vectors, of which the most serious one counts.
func severityOf(o *osv, a *osvAffected) packages.Severity {
	if strings.HasPrefix(o.ID, malwarePrefix) {
		return packages.SeverityMalware
	}
	for _, d := range []databaseSpecific{o.Database, a.Database} {
		if s := wordSeverity(d.Severity); s != packages.SeverityUnknown {
			return s
		}
	}
	found := packages.SeverityUnknown
	for _, list := range [][]osvSeverity{o.Severity, a.Severity} {
		for _, s := range list {
			if strings.HasPrefix(s.Type, "CVSS") {
				found = max(found, vectorSeverity(s.Score))
			} else {
				found = max(found, wordSeverity(s.Score))
			}
		}
	}
	if found == packages.SeverityUnknown && (a.Database.Informational == "unmaintained" || a.Database.Informational == "notice") {
		// RustSec also lists crates that have no vulnerability, but no maintainer either.
		return packages.SeverityLow
	}
	return found
}
