package advisory

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// osv is an advisory in OSV's format, with the fields that decide about versions.
type osv struct {
	ID        string           `json:"id"`
	Modified  time.Time        `json:"modified"`
	Withdrawn *time.Time       `json:"withdrawn"`
	Aliases   []string         `json:"aliases"`
	Severity  []osvSeverity    `json:"severity"`
	Affected  []osvAffected    `json:"affected"`
	Database  databaseSpecific `json:"database_specific"`
}

type osvSeverity struct {
	Type  string `json:"type"`
	Score string `json:"score"`
}

type osvAffected struct {
	Package struct {
		Ecosystem string `json:"ecosystem"`
		Name      string `json:"name"`
	} `json:"package"`
	Severity []osvSeverity    `json:"severity"`
	Ranges   []osvRange       `json:"ranges"`
	Versions []string         `json:"versions"`
	Database databaseSpecific `json:"database_specific"`
}

type osvRange struct {
	Type   string `json:"type"`
	Events []struct {
		Introduced string `json:"introduced"`
		Fixed      string `json:"fixed"`
		Last       string `json:"last_affected"`
		Limit      string `json:"limit"`
	} `json:"events"`
}

// databaseSpecific has the fields of databases outside OSV's schema. A field with another type is
// treated as absent, because each database defines its own.
type databaseSpecific struct {
	Severity, Informational string
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *databaseSpecific) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil //nolint:nilerr // as above
	}
	for name, to := range map[string]*string{"severity": &d.Severity, "informational": &d.Informational} {
		var word string
		if json.Unmarshal(fields[name], &word) == nil && len(word) <= maxText {
			*to = word
		}
	}
	return nil
}

// parsedAdvisory is an advisory with a record for each package of the cache's ecosystems.
type parsedAdvisory struct {
	id        string
	modified  time.Time
	withdrawn bool
	records   map[packages.Ecosystem]map[string]*record // by package
}

// parse reads an advisory in OSV's format. What it says about other ecosystems is left out.
func parse(text []byte) (*parsedAdvisory, error) {
	var o osv
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, invalid("it is not an advisory in OSV's format: %v", err)
	}
	if !printable(o.ID) || strings.ContainsAny(o.ID, " ,()") {
		return nil, invalid("it has no valid id")
	}
	if len(o.Affected) > maxAffected {
		return nil, invalid("%s names more than %d packages", o.ID, maxAffected)
	}
	out := &parsedAdvisory{id: o.ID, modified: o.Modified.UTC(), withdrawn: o.Withdrawn != nil, records: map[packages.Ecosystem]map[string]*record{}}
	for i := range o.Affected {
		a := &o.Affected[i]
		e, release, ok := ecosystemOf(a.Package.Ecosystem)
		if !ok {
			continue
		}
		name := nameOf(e, a.Package.Name)
		if !printable(name) {
			return nil, invalid("%s names a package without a valid name", o.ID)
		}
		versions, err := affectOf(e, o.ID, a)
		if err != nil {
			return nil, err
		}
		versions.Release = release
		if out.records[e] == nil {
			out.records[e] = map[string]*record{}
		}
		r := out.records[e][name]
		if r == nil {
			r = &record{ID: o.ID, Aliases: printables(o.Aliases, maxAliases), Severity: packages.SeverityUnknown.String(), Modified: out.modified}
			out.records[e][name] = r
		}
		if s := severityOf(&o, a); s > r.severity() {
			r.Severity = s.String()
		}
		r.Affects = append(r.Affects, versions)
	}
	return out, nil
}

// affectOf reads which versions of a package are affected. Listed versions that a range contains
// are left out, because distributions list thousands of them.
func affectOf(e packages.Ecosystem, id string, a *osvAffected) (affect, error) {
	var out affect
	if len(a.Ranges) > maxRanges || len(a.Versions) > maxVersions {
		return out, invalid("%s has too many ranges or versions", id)
	}
	var known [][]point
	for _, r := range a.Ranges {
		if r.Type == "GIT" {
			continue // commits, which registries do not know
		}
		if len(r.Events) > maxEvents {
			return out, invalid("%s has a range with more than %d events", id, maxEvents)
		}
		var events []event
		valid := r.Type == "SEMVER" || r.Type == "ECOSYSTEM"
		for _, ev := range r.Events {
			switch {
			case ev.Introduced != "" && ev.Fixed == "" && ev.Last == "":
				events = append(events, event{Introduced: ev.Introduced})
			case ev.Introduced == "" && ev.Fixed != "" && ev.Last == "":
				events = append(events, event{Fixed: ev.Fixed})
			case ev.Introduced == "" && ev.Fixed == "" && ev.Last != "":
				events = append(events, event{Last: ev.Last})
			case ev.Limit == "":
				valid = false
			}
		}
		points, ok := parseRange(e, events)
		if !valid || !ok {
			// A range that cannot be evaluated could contain any version.
			return affect{All: true}, nil
		}
		known = append(known, points)
		out.Ranges = append(out.Ranges, events)
	}
	for _, text := range a.Versions {
		if len(text) > maxText {
			return out, invalid("%s has a version that is too long", id)
		}
		if !contained(e, known, text) {
			out.Versions = append(out.Versions, text)
		}
	}
	// Without any statement about versions that a registry knows, each could be affected.
	out.All = len(out.Ranges) == 0 && len(out.Versions) == 0
	return out, nil
}

// contained reports whether one of some ranges contains a version.
func contained(e packages.Ecosystem, known [][]point, text string) bool {
	if len(known) == 0 {
		return false
	}
	v, ok := parseNumber(e, text)
	if !ok {
		return false
	}
	for _, points := range known {
		if in, _ := inRange(points, v); in {
			return true
		}
	}
	return false
}
