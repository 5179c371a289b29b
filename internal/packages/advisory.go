package packages

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity is how serious an advisory is. The zero Severity is unknown.
type Severity int

// Severities in ascending order.
const (
	SeverityUnknown Severity = iota
	SeverityLow
	SeverityModerate
	SeverityHigh
	SeverityCritical
	SeverityMalware
)

var severityNames = []string{"unknown", "low", "moderate", "high", "critical", "malware"}

// Severities lists the severities that a policy can name, the highest first.
func Severities() []string {
	out := slices.Clone(severityNames[SeverityLow:])
	slices.Reverse(out)
	return out
}

// ParseSeverity reads the name of a known severity.
func ParseSeverity(name string) (Severity, bool) {
	i := slices.Index(severityNames, name)
	return Severity(max(i, 0)), i > int(SeverityUnknown)
}

// String returns the name of a severity.
func (s Severity) String() string {
	if s < 0 || int(s) >= len(severityNames) {
		s = SeverityUnknown
	}
	return severityNames[s]
}

// Reaches reports whether a severity is at least a level. An unknown severity could be any except
// malware, so it reaches every other level.
func (s Severity) Reaches(level Severity) bool {
	if s == SeverityUnknown {
		return level < SeverityMalware
	}
	return s >= level
}

// Advisory is what a database says about one version of a package.
type Advisory struct {
	ID       string
	Aliases  []string
	Severity Severity
	// Fixed are later versions that the advisory does not affect, if it names some.
	Fixed []string
}

// AdvisoryRule is the setting of a policy for versions with advisories. A nil AdvisoryRule refuses
// none.
type AdvisoryRule struct {
	// Level is the lowest severity that is refused.
	Level Severity
	Layer string
	// Accepted reports whether the policy tolerates an advisory. Nil tolerates none.
	Accepted func(id string) bool
	// MaxAge is how old a database may be, and zero without a limit. MaxAgeLayer is the layer that
	// has it.
	MaxAge      time.Duration
	MaxAgeLayer string
}

// RuleAdvisories is the rule of refusals because of advisories.
const RuleAdvisories = "packages.advisories"

// RuleAdvisoryAge is the rule of refusals because the advisories are too old.
const RuleAdvisoryAge = "packages.advisories_max_age"

// Limits of what a message and an audit entry say about advisories.
const (
	// MaxAdvisories limits how many advisories an audit entry names.
	MaxAdvisories = 20
	// maxExplained limits how many advisories a message names.
	maxExplained = 5
)

// tolerates reports whether the policy names an advisory by its ID or an alias.
func (r *AdvisoryRule) tolerates(a Advisory) bool {
	return r.Accepted != nil && (r.Accepted(a.ID) || slices.ContainsFunc(a.Aliases, r.Accepted))
}

// Deny returns the reason why a version with advisories is refused, or nil. The text of a version
// (metadata) is only refused for malware: it has no code, and clients read it also for versions
// that they do not install.
func (r *AdvisoryRule) Deny(a Artifact, found []Advisory, metadata bool) *Denial {
	level := r.Level
	if metadata {
		level = SeverityMalware
	}
	var texts []string
	refused := 0
	for _, f := range found {
		if r.tolerates(f) || !f.Severity.Reaches(level) {
			continue
		}
		if refused++; refused <= maxExplained {
			texts = append(texts, f.text())
		}
	}
	if refused == 0 {
		return nil
	}
	if more := refused - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return &Denial{Rule: RuleAdvisories, Layer: r.Layer, Reason: "The package " + a.String() + " has advisories of at least the severity " +
		r.Level.String() + ", which packages.advisories of the " + r.Layer + " layer refuses: " + strings.Join(texts, ", ") + "."}
}

// text describes an advisory in a message.
func (a Advisory) text() string {
	s := a.ID + " (" + a.Severity.String()
	if len(a.Fixed) > 0 {
		s += ", fixed in " + strings.Join(a.Fixed, " or ")
	}
	return s + ")"
}

// AdvisoryIDs returns the IDs of advisories, as many as an audit entry may name.
func AdvisoryIDs(found []Advisory) []string {
	var out []string
	for _, a := range found {
		if len(out) < MaxAdvisories && !slices.Contains(out, a.ID) {
			out = append(out, a.ID)
		}
	}
	return out
}

// Origin is what an archive says about the source of a binary package. Advisories are about source
// packages.
type Origin struct {
	Name, Version string
	// Releases are the releases of the distribution whose lists have the package, such as
	// Debian:12. A list of another archive is the empty text.
	Releases []string
}
