// Package retained owns the retained changes of ended sandboxes: their change sets, copied out of
// the sandbox into the state directory, for a day.
package retained

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/ids"
)

const (
	// Life is how long changes are retained.
	Life = 24 * time.Hour
	// maxSandboxes limits the number of sandboxes with retained changes, and maxBytes their disk
	// space. The oldest are removed first.
	maxSandboxes = 32
	maxBytes     = 4 << 30

	draftPrefix = ".draft-"
	metaName    = "meta.json"
	newName     = "new"
	goneName    = "gone"
	filesName   = "files"
)

// Meta describes retained changes without their content.
type Meta struct {
	ID        string `json:"id"` // of the sandbox
	Owner     string `json:"owner,omitempty"`
	Workspace string `json:"workspace"` // the host directory that the sandbox showed
	Copy      string `json:"copy,omitempty"`
	// Shown lists the host directories besides the workspace that the sandbox showed, as in its
	// row.
	Shown json.RawMessage `json:"shown,omitempty"`
	// Hidden lists the paths inside that were hidden.
	Hidden    []string  `json:"hidden,omitempty"`
	Dir       string    `json:"dir"` // inside
	TakenAt   time.Time `json:"taken_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Files     int       `json:"files"`
	Added     int       `json:"added"`
	Removed   int       `json:"removed"`
	Bytes     int64     `json:"bytes"`
	// Masked lists files in which secrets were redacted before they were stored.
	Masked []Masked `json:"masked,omitempty"`
	// Access is the sandbox's policy, as in its row.
	Access json.RawMessage `json:"access"`
	// Made describes from what the sandbox was created, for provenance statements.
	Made Made `json:"made"`
}

// Masked is a file whose stored content differs from the content inside.
type Masked struct {
	Path     []byte             `json:"path"` // names may be invalid UTF-8
	Conflict changeset.Conflict `json:"conflict,omitempty"`
}

// Made describes from what a sandbox was created.
type Made struct {
	Template   string    `json:"template,omitempty"`
	TemplateID string    `json:"template_id,omitempty"`
	Revision   string    `json:"revision,omitempty"`
	Engine     string    `json:"engine,omitempty"`
	Boundary   string    `json:"boundary,omitempty"`
	Origin     string    `json:"origin,omitempty"`
	Parent     string    `json:"parent,omitempty"`
	StartedAt  time.Time `json:"started_at,omitzero"`
}

// Store is the directory of all retained changes. Several processes may use it.
type Store struct {
	path string
	// Step, if not nil, is called at each step at which tests can let the process end.
	Step func(name string)
}

func (s *Store) step(name string) {
	if s.Step != nil {
		s.Step(name)
	}
}

// New returns the store. The first draft creates its directory.
func New(path string) *Store { return &Store{path: path} }

// Draft is an unfinished set of retained changes. Commit or Abort ends it.
type Draft struct {
	store *Store
	id    string
	dir   string
	lock  *os.File
	// Files is the directory for contents: file n of the changes has the name "n".
	Files *os.Root
}

// Begin starts storing the changes of a sandbox.
func (s *Store) Begin(id string) (_ *Draft, err error) {
	if err := ids.CheckSandbox(id); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.path, 0o700); err != nil {
		return nil, fmt.Errorf("keep changes: %w", err)
	}
	dir, lock, err := s.draft()
	if err != nil {
		return nil, fmt.Errorf("keep changes: %w", err)
	}
	s.step("draft held")
	d := &Draft{store: s, id: id, dir: dir, lock: lock}
	if err := os.Mkdir(filepath.Join(dir, filesName), 0o700); err != nil {
		return nil, errors.Join(err, d.Abort())
	}
	if d.Files, err = os.OpenRoot(filepath.Join(dir, filesName)); err != nil {
		return nil, errors.Join(err, d.Abort())
	}
	return d, nil
}

// Abort removes the draft.
func (d *Draft) Abort() error {
	var err error
	if d.Files != nil {
		err = d.Files.Close()
	}
	return errors.Join(err, os.RemoveAll(d.dir), d.lock.Close())
}

// Commit publishes the draft with the contents in Files. It replaces earlier retained changes of
// the sandbox.
func (d *Draft) Commit(m Meta, list []changeset.Change) (err error) {
	defer func() { err = errors.Join(err, d.Abort()) }()
	m.ID = d.id
	if err := d.write(newName, list, func(c changeset.Change) *changeset.Entry { return c.New }); err != nil {
		return err
	}
	err = d.write(goneName, list, func(c changeset.Change) *changeset.Entry {
		if c.New != nil {
			return nil
		}
		return c.Old
	})
	if err != nil {
		return err
	}
	// The file names in d.Files are numbers of the list. Numbers may be missing.
	for _, c := range list {
		if c.New != nil && c.New.Type == changeset.Regular {
			m.Bytes += c.New.Size
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(d.dir, metaName), text); err != nil {
		return err
	}
	d.store.step("described")
	if err := d.number(list); err != nil {
		return err
	}
	d.store.step("numbered")
	if err := d.store.publish(d.dir, d.id); err != nil {
		return fmt.Errorf("keep changes: %w", err)
	}
	d.store.step("published")
	return durable.SyncDir(d.store.path)
}

// number renames the contents to the position of their entry, sorted by path, by which they are
// found later.
func (d *Draft) number(list []changeset.Change) error {
	var fresh []int
	for i, c := range list {
		if c.New != nil {
			fresh = append(fresh, i)
		}
	}
	slices.SortFunc(fresh, func(x, y int) int { return strings.Compare(list[x].Path, list[y].Path) })
	for n, i := range fresh {
		err := d.Files.Rename(strconv.Itoa(i), contentName(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep changes: %w", err)
		}
	}
	return nil
}

// contentName returns the file name of a new entry's content.
func contentName(n int) string { return "new-" + strconv.Itoa(n) }

// write writes the entries that pick selects, as a tree.
func (d *Draft) write(name string, list []changeset.Change, pick func(changeset.Change) *changeset.Entry) error {
	var b bytes.Buffer
	out := changeset.NewEncoder(&b)
	for _, c := range list {
		if e := pick(c); e != nil {
			if err := out.Put(*e); err != nil {
				return err
			}
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return writeSynced(filepath.Join(d.dir, name), b.Bytes())
}

func (s *Store) at(id string) string { return filepath.Join(s.path, id) }

// Unknown returns the error for a sandbox without retained changes.
func Unknown(id string) error {
	return fault.Newf(fault.NotFound, "changes_not_found", "no changes were kept of %.64q", id)
}

// Meta returns the description of a sandbox's retained changes. It does not find expired ones.
func (s *Store) Meta(id string) (Meta, error) {
	m, err := s.read(id)
	if err == nil && !time.Now().Before(m.ExpiresAt) {
		return Meta{}, Unknown(id)
	}
	return m, err
}

// read is like Meta, but also finds expired changes.
func (s *Store) read(id string) (Meta, error) {
	if !ids.ValidSandbox(id) {
		return Meta{}, Unknown(id)
	}
	text, err := os.ReadFile(filepath.Join(s.at(id), metaName))
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, Unknown(id)
	}
	if err != nil {
		return Meta{}, fmt.Errorf("kept changes: %w", err)
	}
	var m Meta
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&m)
	if err == nil && m.ID != id {
		err = fmt.Errorf("they are of sandbox %.64q", m.ID)
	}
	if err != nil {
		return Meta{}, fmt.Errorf("kept changes of %s are damaged: %w", id, err)
	}
	return m, nil
}

// Has reports whether the store has retained changes of a sandbox, expired or not.
func (s *Store) Has(id string) bool {
	if !ids.ValidSandbox(id) {
		return false
	}
	_, err := os.Lstat(s.at(id))
	return err == nil
}

// Needs reports whether any retained changes, expired or not, are compared with the copy of a
// workspace. Usually these are the changes of the sandbox for which the copy was made and after
// which it is named. Otherwise Needs reads the others, of which Sweep leaves only a few. Changes
// that cannot be read count as needing the copy, until Sweep removes them.
func (s *Store) Needs(copied string) bool {
	if s.Has(copied) {
		return true
	}
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if !ids.ValidSandbox(e.Name()) {
			return false
		}
		m, err := s.read(e.Name())
		if err != nil {
			return fault.KindOf(err) != fault.NotFound // removed since the directory was read
		}
		return m.Copy == copied
	})
}

// List returns the retained changes, newest first.
func (s *Store) List() ([]Meta, error) {
	entries, err := os.ReadDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kept changes: %w", err)
	}
	var out []Meta
	for _, e := range entries {
		if !ids.ValidSandbox(e.Name()) {
			continue
		}
		// Damaged changes, and those that are being removed, are not listed. Sweep removes damaged
		// ones.
		if m, err := s.Meta(e.Name()); err == nil {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(x, y Meta) int { return cmp.Or(y.TakenAt.Compare(x.TakenAt), strings.Compare(x.ID, y.ID)) })
	return out, nil
}

// Remove removes the retained changes of a sandbox. It is no error if there are none.
func (s *Store) Remove(id string) error {
	if err := ids.CheckSandbox(id); err != nil {
		return err
	}
	if !s.Has(id) {
		return nil
	}
	return s.remove(id)
}

// Sweep removes expired and damaged changes, those beyond the limits, and drafts of ended
// processes. It returns the sandboxes that no longer have retained changes.
func (s *Store) Sweep() ([]string, error) {
	entries, err := os.ReadDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kept changes: %w", err)
	}
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	isRetained, bytes := map[string]bool{}, int64(0)
	for i, m := range list {
		bytes += m.Bytes
		isRetained[m.ID] = i < maxSandboxes && (i == 0 || bytes <= maxBytes)
	}
	var gone []string
	errs := []error{s.sweepDrafts()}
	for _, e := range entries {
		// A directory with a final name is complete, and existed before the list was read.
		name := e.Name()
		if isRetained[name] || !ids.ValidSandbox(name) {
			continue
		}
		if err := s.Remove(name); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, name)
	}
	return gone, errors.Join(errs...)
}

func writeSynced(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
