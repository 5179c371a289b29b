package advisory

import (
	"slices"

	"github.com/crannog/crannog/internal/packages"
)

// maxFixed limits the fixed versions of an advisory in a message.
const maxFixed = 3

// point is a parsed event.
type point struct {
	event
	at     number
	lowest bool // before every version, which OSV writes as introduced 0
}

// rank orders events of the same version: an affected version that begins again there is affected.
func (p point) rank() int {
	if p.Introduced != "" {
		return 1
	}
	return 0
}

func comparePoints(a, b point) int {
	switch {
	case a.lowest || b.lowest:
		if a.lowest && b.lowest {
			return 0
		}
		if a.lowest {
			return -1
		}
		return 1
	}
	if c := a.at.compare(b.at); c != 0 {
		return c
	}
	return a.rank() - b.rank()
}

// parseRange parses and orders the events of a range. It returns false if the range cannot be
// evaluated.
func parseRange(e packages.Ecosystem, events []event) ([]point, bool) {
	out := make([]point, 0, len(events))
	begins := false
	for _, ev := range events {
		p := point{event: ev}
		if ev.Introduced == "0" {
			p.lowest = true
		} else {
			var ok bool
			if p.at, ok = parseNumber(e, ev.version()); !ok {
				return nil, false
			}
		}
		begins = begins || ev.Introduced != ""
		out = append(out, p)
	}
	slices.SortStableFunc(out, comparePoints)
	return out, begins
}

// inRange reports whether a version is in a range, and which later versions fix it.
func inRange(points []point, v number) (affected bool, fixed []string) {
	for _, p := range points {
		c := 1
		if !p.lowest {
			c = v.compare(p.at)
		}
		switch {
		case c < 0 && p.Fixed != "":
			fixed = append(fixed, p.Fixed)
		case p.Introduced != "" && c >= 0:
			affected = true
		case p.Fixed != "" && c >= 0, p.Last != "" && c > 0:
			affected = false
		}
	}
	return affected, fixed[:min(len(fixed), 1)]
}

// ranges are the parsed ranges and versions of an affect.
type ranges struct {
	release  string
	all      bool
	points   [][]point
	numbers  []number // listed versions, in ascending order
	literals []string // listed versions that cannot be compared
}

func parseAffect(e packages.Ecosystem, a affect) ranges {
	out := ranges{release: a.Release, all: a.All}
	for _, events := range a.Ranges {
		points, ok := parseRange(e, events)
		if !ok {
			out.all = true
			continue
		}
		out.points = append(out.points, points)
	}
	for _, text := range a.Versions {
		if n, ok := parseNumber(e, text); ok {
			out.numbers = append(out.numbers, n)
		} else {
			out.literals = append(out.literals, text)
		}
	}
	slices.SortFunc(out.numbers, number.compare)
	return out
}

// has reports whether a version is affected, and which versions fix it. A version that cannot be
// compared with a range counts as affected, because it could be in it.
func (r ranges) has(text string, v number, parsed bool) (affected bool, fixed []string) {
	if r.all || slices.Contains(r.literals, text) || !parsed && len(r.points) > 0 {
		return true, nil
	}
	if !parsed {
		return false, nil
	}
	if _, listed := slices.BinarySearchFunc(r.numbers, v, number.compare); listed {
		affected = true
	}
	for _, points := range r.points {
		in, by := inRange(points, v)
		if in {
			affected, fixed = true, append(fixed, by...)
		}
	}
	return affected, fixed
}

// parsedRecord is a record with parsed ranges.
type parsedRecord struct {
	packages.Advisory
	affects []ranges
}

// Package has the advisories about one package.
type Package struct {
	ecosystem packages.Ecosystem
	records   []parsedRecord
}

func parsePackage(e packages.Ecosystem, list []record) *Package {
	out := &Package{ecosystem: e}
	for _, r := range list {
		p := parsedRecord{Advisory: packages.Advisory{ID: r.ID, Aliases: r.Aliases, Severity: r.severity()}}
		for _, a := range r.Affects {
			p.affects = append(p.affects, parseAffect(e, a))
		}
		out.records = append(out.records, p)
	}
	out.shareSeverities()
	return out
}

// shareSeverities gives an advisory without a severity that of another one about the same
// vulnerability. The databases of Go and Python state none, and their aliases on GitHub do.
func (p *Package) shareSeverities() {
	known := map[string]packages.Severity{}
	for _, r := range p.records {
		if r.Severity == packages.SeverityUnknown || r.Severity == packages.SeverityMalware {
			continue
		}
		for _, id := range append([]string{r.ID}, r.Aliases...) {
			known[id] = max(known[id], r.Severity)
		}
	}
	for i := range p.records {
		r := &p.records[i]
		if r.Severity != packages.SeverityUnknown {
			continue
		}
		for _, id := range append([]string{r.ID}, r.Aliases...) {
			r.Severity = max(r.Severity, known[id])
		}
	}
}

// Find returns the advisories that affect a version in one of some releases, the most serious
// first. Without a release, those of all releases count.
func (p *Package) Find(version string, releases []string) []packages.Advisory {
	v, parsed := parseNumber(p.ecosystem, version)
	var out []packages.Advisory
	for _, r := range p.records {
		affected := false
		var fixed []string
		for _, a := range r.affects {
			if len(releases) > 0 && !slices.ContainsFunc(releases, func(rel string) bool { return sameRelease(rel, a.release) }) {
				continue
			}
			if in, by := a.has(version, v, parsed); in {
				affected, fixed = true, append(fixed, by...)
			}
		}
		if affected {
			found := r.Advisory
			found.Fixed = printables(fixed, maxFixed)
			out = append(out, found)
		}
	}
	slices.SortStableFunc(out, func(a, b packages.Advisory) int { return order(b.Severity) - order(a.Severity) })
	return out
}

// order places an unknown severity where it could be, below malware.
func order(s packages.Severity) int {
	if s == packages.SeverityUnknown {
		return 2*int(packages.SeverityCritical) + 1
	}
	return 2 * int(s)
}
