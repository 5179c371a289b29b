package advisory

import (
	"os"
	"slices"
	"sync"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// maxRemembered limits the bytes of records whose parsed form a Reader keeps.
const maxRemembered = 2 << 20

// Files opens the file of an ecosystem's database. The error has the kind NotFound if there is none.
type Files interface {
	Advisories(e packages.Ecosystem) (*os.File, error)
}

// Reader finds advisories. It reads a database again after it was replaced.
type Reader struct {
	files Files

	mu   sync.Mutex
	open map[packages.Ecosystem]*opened
}

// opened is an open database.
type opened struct {
	*file
	content *os.File
	state   store.FileState
	parsed  map[string]*Package
	size    int64 // of the records in parsed
}

// NewReader returns a Reader.
func NewReader(files Files) *Reader {
	return &Reader{files: files, open: map[packages.Ecosystem]*opened{}}
}

// missing is the error for an ecosystem without a database.
func missing(e packages.Ecosystem) error {
	return fault.Newf(fault.NotFound, "advisories_missing", "no advisory database was imported for %s", e).
		WithHint("import one with crannog cache advisories import")
}

// Info describes the database of an ecosystem. It returns an error if the database cannot be read.
func (r *Reader) Info(e packages.Ecosystem) (Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.current(e)
	if err != nil {
		return Info{}, err
	}
	return o.Info, nil
}

// Find returns the advisories that affect a version. origin may be nil.
func (r *Reader) Find(a packages.Artifact, origin *packages.Origin) ([]packages.Advisory, error) {
	var releases []string
	name, version := a.Name, a.Version
	if origin != nil {
		name, version, releases = origin.Name, origin.Version, known(origin.Releases)
	}
	p, err := r.find(a.Ecosystem, nameOf(a.Ecosystem, name), releases)
	if err != nil {
		return nil, err
	}
	return p.Find(version, releases), nil
}

// known returns the releases, or nil if the package is also in a list of an unknown one: then the
// advisories of all releases count.
func known(releases []string) []string {
	if slices.Contains(releases, "") {
		return nil
	}
	return releases
}

func (r *Reader) find(e packages.Ecosystem, name string, releases []string) (*Package, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.current(e)
	if err != nil {
		return nil, err
	}
	for _, release := range releases {
		if !o.knows(release) {
			return nil, fault.Newf(fault.NotFound, "advisories_missing", "no advisories about %s were imported", release).
				WithHint("import them with crannog cache advisories import")
		}
	}
	if p := o.parsed[name]; p != nil {
		return p, nil
	}
	records, size, err := o.records(name)
	if err != nil {
		return nil, err
	}
	p := parsePackage(e, records)
	if size <= maxRemembered/2 {
		if o.size += size; o.size > maxRemembered {
			clear(o.parsed)
			o.size = size
		}
		o.parsed[name] = p
	}
	return p, nil
}

// knows reports whether the database has advisories about a release of a distribution.
func (o *opened) knows(release string) bool {
	for _, r := range o.Releases {
		if sameRelease(r, release) {
			return true
		}
	}
	return false
}

// current returns the database of an ecosystem, as it is now.
func (r *Reader) current(e packages.Ecosystem) (*opened, error) {
	f, err := r.files.Advisories(e)
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			r.forget(e)
			return nil, missing(e)
		}
		return nil, err
	}
	state, err := store.StateOf(f)
	if err != nil {
		f.Close()
		return nil, damaged(err)
	}
	if o := r.open[e]; o != nil && o.state == state {
		f.Close()
		return o, nil
	}
	r.forget(e)
	d, err := decode(f, state.Size, e)
	if err != nil {
		f.Close()
		return nil, err
	}
	o := &opened{file: d, content: f, state: state, parsed: map[string]*Package{}}
	r.open[e] = o
	return o, nil
}

func (r *Reader) forget(e packages.Ecosystem) {
	if o := r.open[e]; o != nil {
		o.content.Close()
		delete(r.open, e)
	}
}
