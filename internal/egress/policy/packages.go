package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// maxMinAge is the maximum of packages.min_age.
const maxMinAge = Duration(8760 * time.Hour)

// Installs reports whether the document has settings about installing packages.
func (p Packages) Installs() bool {
	return len(p.Cache) > 0 || len(p.Registries) > 0 || p.MinAge > 0 || len(p.Allow) > 0 || len(p.Deny) > 0 || p.Offline != nil ||
		len(p.Unverified) > 0 || len(p.Undated) > 0 || p.Advises() || p.Locks() || p.Inspects() || p.Scans()
}

// BeyondNPM reports whether the document has settings that earlier versions of the gateway do not
// know. They had only the ecosystem npm.
func (p Packages) BeyondNPM() bool {
	other := func(e string) bool { return e != string(packages.NPM) }
	otherEntry := func(entry string) bool { return !strings.HasPrefix(entry, string(packages.NPM)+":") }
	return slices.ContainsFunc(p.Cache, other) || slices.ContainsFunc(p.Registries, func(r Registry) bool { return other(r.Ecosystem) }) ||
		slices.ContainsFunc(p.Allow, otherEntry) || slices.ContainsFunc(p.Deny, otherEntry) || len(p.Unverified) > 0 || len(p.Undated) > 0
}

// Images reports whether the document has settings about registries of images, which earlier
// versions of the gateway do not know either.
func (p Packages) Images() bool {
	image := func(entry string) bool { return strings.HasPrefix(entry, string(packages.OCI)+":") }
	return slices.Contains(p.Cache, string(packages.OCI)) ||
		slices.ContainsFunc(p.Registries, func(r Registry) bool { return r.Ecosystem == string(packages.OCI) }) ||
		slices.ContainsFunc([][]string{p.Allow, p.Deny, p.Unverified, p.Undated}, func(list []string) bool { return slices.ContainsFunc(list, image) })
}

// installs combines the layers' settings about installing packages.
type installs struct {
	cache      []string
	registries []Registry
	cachedBy   []packageList // the ecosystems in cache of each layer
	minAge     Duration
	ageLayer   string
	agedBy     []string      // the layers that have a minimum age
	allow      []packageList // one for each layer that has one; a package must match each
	deny       []packageList
	offline    *bool
	unverified []packageList // as allow
	undated    []packageList // as allow
	advisories advisories
	locked     lockedInstalls
	content    inspected
	scan       scanned
}

type packageList struct {
	layer   string
	entries []string
}

func (i *installs) merge(l Layer) {
	d := l.Document.Packages
	i.cache = union(i.cache, d.Cache)
	for _, r := range d.Registries {
		if !slices.Contains(i.registries, r) {
			i.registries = append(i.registries, r)
		}
	}
	if len(d.Cache) > 0 {
		i.cachedBy = append(i.cachedBy, packageList{l.Kind, d.Cache})
	}
	if d.MinAge > 0 {
		i.agedBy = append(i.agedBy, l.Kind)
	}
	if d.MinAge > i.minAge {
		i.minAge, i.ageLayer = d.MinAge, l.Kind
	}
	if len(d.Allow) > 0 {
		i.allow = append(i.allow, packageList{l.Kind, d.Allow})
	}
	if len(d.Deny) > 0 {
		i.deny = append(i.deny, packageList{l.Kind, d.Deny})
	}
	i.offline = either(i.offline, d.Offline)
	if len(d.Unverified) > 0 {
		i.unverified = append(i.unverified, packageList{l.Kind, d.Unverified})
	}
	if len(d.Undated) > 0 {
		i.undated = append(i.undated, packageList{l.Kind, d.Undated})
	}
	i.advisories.merge(l)
	i.locked.merge(l)
	i.content.merge(l)
	i.scan.merge(l)
}

func (i *installs) into(m *Document) {
	p := &m.Packages
	p.Cache, p.Registries, p.MinAge, p.Offline = i.cache, i.registries, i.minAge, i.offline
	for _, l := range i.allow {
		p.Allow = union(p.Allow, l.entries)
	}
	for _, l := range i.deny {
		p.Deny = union(p.Deny, l.entries)
	}
	for _, l := range i.unverified {
		p.Unverified = union(p.Unverified, l.entries)
	}
	for _, l := range i.undated {
		p.Undated = union(p.Undated, l.entries)
	}
	i.advisories.into(p)
	i.locked.into(p)
	i.content.into(p)
	p.Scan = i.scan.scanner
}

// Registry returns the ecosystem of a host whose packages come from the cache.
func (p *Policy) Registry(host string) (packages.Ecosystem, bool) {
	if len(p.installs.cache) == 0 {
		return "", false
	}
	e, ok := packages.WellKnown(host)
	for _, r := range p.installs.registries {
		if r.Host == host {
			e, ok = packages.Ecosystem(r.Ecosystem), true
		}
	}
	return e, ok && p.Caches(e)
}

// Caches reports whether the packages of an ecosystem come from the cache.
func (p *Policy) Caches(e packages.Ecosystem) bool {
	return slices.Contains(p.installs.cache, string(e))
}

// Offline reports whether only packages that the cache already has may be installed.
func (p *Policy) Offline() bool { return set(p.installs.offline) }

// Dated reports whether the gate needs to know when packages were published.
func (p *Policy) Dated() bool { return p.installs.minAge > 0 }

// Unverified reports whether a package may be installed although nothing vouches for its content.
func (p *Policy) Unverified(a packages.Artifact) bool {
	var by []string
	for _, l := range p.installs.cachedBy {
		if slices.Contains(l.entries, string(a.Ecosystem)) {
			by = append(by, l.layer)
		}
	}
	return excepted(by, p.installs.unverified, func(l packageList) bool { return l.find(a, true) != "" })
}

// excepted reports whether a rule does not hold for something. by are the layers that have the rule,
// and lists those with exceptions from it. Each layer that has the rule must have a list, because a
// task could otherwise lift a rule of its organisation, and each list must name the thing.
func excepted(by []string, lists []packageList, names func(l packageList) bool) bool {
	for _, layer := range by {
		if !slices.ContainsFunc(lists, func(l packageList) bool { return l.layer == layer }) {
			return false
		}
	}
	for _, l := range lists {
		if !names(l) {
			return false
		}
	}
	return len(lists) > 0
}

// Gate returns a function that decides whether a package may be installed at the time of now.
func (p *Policy) Gate(now func() time.Time) packages.Gate {
	return func(a packages.Artifact, v packages.Version, known bool) *packages.Denial {
		for _, l := range p.installs.deny {
			if entry := l.find(a, true); entry != "" {
				return &packages.Denial{Rule: RuleForbidden, Layer: l.layer, Reason: "The package " + a.String() + " is denied by " + strconv.Quote(entry) + " in packages.deny of the " + l.layer + " layer."}
			}
		}
		for _, l := range p.installs.allow {
			if l.find(a, known) == "" {
				return &packages.Denial{Rule: RuleInstall, Layer: l.layer, Reason: "The package " + a.String() + " is not in packages.allow of the " + l.layer + " layer."}
			}
		}
		if v.Published.IsZero() && excepted(p.installs.agedBy, p.installs.undated, func(l packageList) bool { return l.find(a, true) != "" }) {
			return nil
		}
		if age := time.Duration(p.installs.minAge); known && packages.Young(v, age, now()) {
			when := "at an unknown time"
			switch {
			case !v.Published.IsZero():
				when = v.Published.UTC().Format("2006-01-02 15:04 UTC")
			case !v.NotAfter.IsZero():
				when += " before " + v.NotAfter.UTC().Format("2006-01-02 15:04 UTC")
			}
			return &packages.Denial{
				Rule: RuleMinAge, Layer: p.installs.ageLayer, Hidden: true,
				Reason: "The package " + a.String() + " was published " + when + ", and packages.min_age of the " + p.installs.ageLayer + " layer is " + p.installs.minAge.String() + ".",
			}
		}
		return nil
	}
}

// find returns the entry that matches a package. Without exact, an entry for some versions matches
// too, because another request will name the version.
func (l packageList) find(a packages.Artifact, exact bool) string {
	for _, entry := range l.entries {
		e, name, version, ok := packages.ParsePattern(entry)
		if !ok || e != a.Ecosystem || !Match(name, a.Name) {
			continue
		}
		if version == "" || !exact && a.Version == "" || a.Version != "" && Match(version, a.Version) {
			return entry
		}
	}
	return ""
}

// packages checks a document's settings about packages.
func (c *checker) packages(p *Packages) {
	c.effect("packages.publish", p.Publish)
	c.list("packages.cache", len(p.Cache), maxEntries, p.Cache != nil && len(p.Cache) == 0)
	for i, e := range p.Cache {
		c.word("packages.cache["+strconv.Itoa(i)+"]", e, packages.Ecosystems())
	}
	c.list("packages.registries", len(p.Registries), maxEntries, p.Registries != nil && len(p.Registries) == 0)
	c.registries(p.Registries)
	c.duration("packages.min_age", p.MinAge, maxMinAge)
	for _, l := range []struct {
		field   string
		entries []string
	}{{"packages.allow", p.Allow}, {"packages.deny", p.Deny}, {"packages.unverified", p.Unverified}, {"packages.undated", p.Undated}, {"packages.unlocked", p.Unlocked}, {"packages.tolerated", p.Tolerated}} {
		c.list(l.field, len(l.entries), maxEntries, l.entries != nil && len(l.entries) == 0)
		for i, entry := range l.entries {
			c.packageEntry(l.field+"["+strconv.Itoa(i)+"]", entry)
		}
	}
	c.advisories(p)
	c.word(packages.RuleContent, p.Content, contentModes)
	c.word(packages.RuleScan, p.Scan, scanners)
}

func (c *checker) packageEntry(field, entry string) {
	_, name, version, ok := packages.ParsePattern(entry)
	if !ok {
		c.bad(field, "%q is not ECOSYSTEM:NAME or ECOSYSTEM:NAME@VERSION; ecosystems: %s", clip(entry), strings.Join(packages.Ecosystems(), ", "))
		return
	}
	c.glob(field, name)
	if version != "" {
		c.glob(field, version)
	}
}

// registries checks that no host is a registry of two ecosystems.
func (c *checker) registries(list []Registry) {
	for i, r := range list {
		field := "packages.registries[" + strconv.Itoa(i) + "]"
		if !validName(r.Host) {
			c.bad(field+".host", "%q is not a host's name", clip(r.Host))
		}
		c.word(field+".ecosystem", r.Ecosystem, packages.Ecosystems())
		if r.Ecosystem == "" {
			c.bad(field+".ecosystem", "is missing")
		}
		if slices.ContainsFunc(list[:i], func(o Registry) bool { return o.Host == r.Host && o.Ecosystem != r.Ecosystem }) {
			c.bad(field, "%s has two ecosystems", clip(r.Host))
		}
	}
}

// installs compares what may be installed.
func (w *widening) installs(a, b *installs) {
	for _, e := range a.cache {
		if !slices.Contains(b.cache, e) {
			w.add("packages.cache: %s was removed", e)
		}
	}
	for _, r := range a.registries {
		if !slices.Contains(b.registries, r) {
			w.add("packages.registries: %s was removed", r.Host)
		}
	}
	if b.minAge < a.minAge {
		w.add("packages.min_age: %s becomes %s", a.minAge, b.minAge)
	}
	if set(a.offline) && !set(b.offline) {
		w.add("packages.offline: was removed")
	}
	for _, l := range a.allow {
		if !slices.ContainsFunc(b.allow, func(n packageList) bool { return coversAll(l.entries, n.entries) }) {
			w.add("packages.allow: more than %s", strings.Join(l.entries, " "))
		}
	}
	w.exceptions("unverified", a.unverified, b.unverified)
	w.exceptions("undated", a.undated, b.undated)
	w.advisories(&a.advisories, &b.advisories)
	w.locked(&a.locked, &b.locked)
	w.content(&a.content, &b.content)
	w.scan(&a.scan, &b.scan)
	for _, l := range a.deny {
		for _, entry := range l.entries {
			if !slices.ContainsFunc(b.deny, func(n packageList) bool { return slices.Contains(n.entries, entry) }) {
				w.add("packages.deny: %s was removed", entry)
			}
		}
	}
}

// exceptions compares lists of packages for which a rule does not hold.
func (w *widening) exceptions(field string, a, b []packageList) {
	if len(b) == 0 {
		return
	}
	if len(a) == 0 {
		w.add("packages.%s: %s was added", field, strings.Join(b[0].entries, " "))
		return
	}
	for _, l := range a {
		if !slices.ContainsFunc(b, func(n packageList) bool { return coversAll(l.entries, n.entries) }) {
			w.add("packages.%s: more than %s", field, strings.Join(l.entries, " "))
		}
	}
}
