package policy

import (
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// maxAdvisoryID limits the length of an advisory's ID.
const maxAdvisoryID = 128

// minAdvisoryAge is the minimum of packages.advisories_max_age. Advisories are published each hour
// at most.
const minAdvisoryAge = Duration(time.Hour)

// Advises reports whether the document has settings about advisories, which earlier versions of the
// gateway do not know.
func (p Packages) Advises() bool {
	return p.Advisories != "" || len(p.Accepted) > 0 || p.AdvisoriesMaxAge > 0
}

// advisories combines the layers' settings about advisories.
type advisories struct {
	level    packages.Severity // unknown if no layer has one
	layer    string
	by       []string // the layers that have one
	accepted []packageList
	// maxAge is how old the databases may be, and zero without a limit.
	maxAge      Duration
	maxAgeLayer string
}

func (a *advisories) merge(l Layer) {
	d := l.Document.Packages
	// The lowest level refuses the most.
	if level, ok := packages.ParseSeverity(d.Advisories); ok {
		a.by = append(a.by, l.Kind)
		if a.level == packages.SeverityUnknown || level < a.level {
			a.level, a.layer = level, l.Kind
		}
	}
	if age := d.AdvisoriesMaxAge; age > 0 && (a.maxAge == 0 || age < a.maxAge) {
		a.maxAge, a.maxAgeLayer = age, l.Kind
	}
	if len(d.Accepted) > 0 {
		a.accepted = append(a.accepted, packageList{l.Kind, d.Accepted})
	}
}

func (a *advisories) into(p *Packages) {
	p.Advisories, p.AdvisoriesMaxAge = "", a.maxAge
	if a.level != packages.SeverityUnknown {
		p.Advisories = a.level.String()
	}
	for _, l := range a.accepted {
		p.Accepted = union(p.Accepted, l.entries)
	}
}

// accepts reports whether an advisory is tolerated.
func (a *advisories) accepts(id string) bool {
	return excepted(a.by, a.accepted, func(l packageList) bool { return l.names(id) })
}

// names reports whether the list has an advisory's ID. Databases write the letters of some IDs in
// different cases.
func (l packageList) names(id string) bool {
	for _, entry := range l.entries {
		if strings.EqualFold(entry, id) {
			return true
		}
	}
	return false
}

// Advisories returns the rule for versions with advisories, or nil if there is none.
func (p *Policy) Advisories() *packages.AdvisoryRule {
	a := &p.installs.advisories
	if a.level == packages.SeverityUnknown {
		return nil
	}
	return &packages.AdvisoryRule{Level: a.level, Layer: a.layer, Accepted: a.accepts, MaxAge: time.Duration(a.maxAge), MaxAgeLayer: a.maxAgeLayer}
}

// advisories checks a document's settings about advisories.
func (c *checker) advisories(p *Packages) {
	c.word("packages.advisories", p.Advisories, packages.Severities())
	c.duration("packages.advisories_max_age", p.AdvisoriesMaxAge, maxMinAge)
	if p.AdvisoriesMaxAge > 0 && p.AdvisoriesMaxAge < minAdvisoryAge {
		c.bad("packages.advisories_max_age", "%s is shorter than %s", p.AdvisoriesMaxAge, minAdvisoryAge)
	}
	c.list("packages.accepted", len(p.Accepted), maxEntries, p.Accepted != nil && len(p.Accepted) == 0)
	for i, id := range p.Accepted {
		if len(id) > maxAdvisoryID || !advisoryID(id) {
			c.bad("packages.accepted["+strconv.Itoa(i)+"]", "%q is not the ID of an advisory, such as GHSA-35jh-r3h4-6jhm", clip(id))
		}
	}
}

// advisoryID reports whether s has the form of an ID: words with a number or hyphens between, and
// no pattern, because a pattern could accept advisories that do not exist yet.
func advisoryID(s string) bool {
	return strings.Contains(s, "-") && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_.:") == ""
}

// advisories compares which versions with advisories may be installed.
func (w *widening) advisories(a, b *advisories) {
	switch {
	case a.level == packages.SeverityUnknown:
	case b.level == packages.SeverityUnknown:
		w.add("packages.advisories: %s was removed", a.level)
	case b.level > a.level:
		w.add("packages.advisories: %s becomes %s", a.level, b.level)
	}
	if a.maxAge > 0 && (b.maxAge == 0 || b.maxAge > a.maxAge) {
		w.add("packages.advisories_max_age: %s becomes %s", a.maxAge, limitOf(b.maxAge))
	}
	if len(b.accepted) == 0 {
		return
	}
	for _, id := range b.accepted[0].entries { // what the first list lacks is not accepted
		if b.accepts(id) && !a.accepts(id) {
			w.add("packages.accepted: %s was added", id)
		}
	}
}

// limitOf describes a limit of the age of databases.
func limitOf(age Duration) string {
	if age == 0 {
		return "unlimited"
	}
	return age.String()
}
