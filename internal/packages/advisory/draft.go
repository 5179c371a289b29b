package advisory

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// draft is a database in memory, while advisories are added to it.
type draft struct {
	ecosystem  packages.Ecosystem
	advisories map[string]stored // by ID
	size       int64
}

// stored is an advisory in a draft. Its records are JSON, which takes less memory than values.
type stored struct {
	modified time.Time
	parts    []part
}

// part is the record about one package.
type part struct {
	name     string
	text     []byte
	releases []string
}

func newDraft(e packages.Ecosystem) *draft {
	return &draft{ecosystem: e, advisories: map[string]stored{}}
}

// load adds what an existing database has.
func (d *draft) load(f *file) error {
	for n := range f.Packages {
		b, err := f.block(n)
		if err != nil {
			return err
		}
		for i := range b.Records {
			if err := d.append(b.Package, &b.Records[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// append adds a record about one more package to an advisory.
func (d *draft) append(name string, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p := part{name: name, text: text}
	for _, a := range r.Affects {
		if a.Release != "" && !slices.Contains(p.releases, a.Release) {
			p.releases = append(p.releases, a.Release)
		}
	}
	s := d.advisories[r.ID]
	s.modified = r.Modified
	s.parts = append(s.parts, p)
	d.advisories[r.ID] = s
	if d.size += int64(len(text)); d.size > maxFile || len(d.advisories) > maxRecords {
		return tooLarge("the database of %s would have more than %d advisories or %d bytes", d.ecosystem, maxRecords, maxFile)
	}
	return nil
}

// put replaces an advisory, unless the draft has a newer form of it. A withdrawn advisory is
// removed.
func (d *draft) put(a *parsedAdvisory) error {
	old, known := d.advisories[a.id]
	if known && old.modified.After(a.modified) {
		return nil
	}
	for _, p := range old.parts {
		d.size -= int64(len(p.text))
	}
	delete(d.advisories, a.id)
	if a.withdrawn {
		return nil
	}
	records := a.records[d.ecosystem]
	for _, name := range slices.Sorted(maps.Keys(records)) {
		if err := d.append(name, records[name]); err != nil {
			return err
		}
	}
	return nil
}

// blocks returns the description and the blocks of the database.
func (d *draft) blocks(imported time.Time) (Info, map[string][]byte, error) {
	info := Info{Ecosystem: d.ecosystem, Advisories: len(d.advisories), Imported: imported.UTC()}
	releases, texts := map[string]bool{}, map[string][][]byte{}
	for _, id := range slices.Sorted(maps.Keys(d.advisories)) {
		a := d.advisories[id]
		if a.modified.After(info.Modified) {
			info.Modified = a.modified
		}
		for _, p := range a.parts {
			texts[p.name] = append(texts[p.name], p.text)
			for _, r := range p.releases {
				releases[r] = true
			}
		}
	}
	if len(releases) > maxReleases {
		return info, nil, tooLarge("the advisories are about more than %d releases", maxReleases)
	}
	info.Releases = slices.Sorted(maps.Keys(releases))
	out := make(map[string][]byte, len(texts))
	for name, list := range texts {
		quoted, err := json.Marshal(name)
		if err != nil {
			return info, nil, err
		}
		out[name] = slices.Concat([]byte(`{"package":`), quoted, []byte(`,"records":[`), bytes.Join(list, []byte(",")), []byte("]}"))
	}
	return info, out, nil
}
