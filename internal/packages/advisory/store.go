package advisory

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// Store writes the databases of one state directory. Several processes may do so at the same time.
type Store struct{ dir string }

// Open opens the databases below a state directory, in which the package cache exists.
func Open(stateDir string) *Store { return &Store{filepath.Join(stateDir, store.DirName)} }

func (s *Store) path(e packages.Ecosystem) string { return filepath.Join(s.dir, store.AdvisoryFile(e)) }

// Imported is the result of Import.
type Imported struct {
	// Advisories is the number that was read, Withdrawn how many of these are withdrawn, and Skipped
	// how many are about other ecosystems.
	Advisories, Withdrawn, Skipped int
	// Databases are the ones that the file was about, as they are now.
	Databases []Info
}

// Import adds the advisories of a file to the databases of their ecosystems. An advisory replaces
// the one with the same ID, unless that is newer. If anything is invalid, nothing changes.
func (s *Store) Import(ctx context.Context, content io.ReaderAt, size int64) (Imported, error) {
	unlock, err := s.lock()
	if err != nil {
		return Imported{}, err
	}
	defer unlock()
	var out Imported
	drafts := map[packages.Ecosystem]*draft{}
	err = read(ctx, content, size, func(a *parsedAdvisory) error {
		out.Advisories++
		if a.withdrawn {
			out.Withdrawn++
		}
		if len(a.records) == 0 {
			out.Skipped++
		}
		for e := range a.records {
			if drafts[e] == nil {
				d, err := s.draft(e, a.withdrawn)
				if d == nil || err != nil {
					return err
				}
				drafts[e] = d
			}
			if err := drafts[e].put(a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Imported{}, err
	}
	if len(drafts) == 0 {
		return Imported{}, invalid("there is no advisory about an ecosystem of the package cache in it").
			WithHint("download all.zip of npm, Go, PyPI, crates.io, Maven, Debian or Ubuntu from https://osv-vulnerabilities.storage.googleapis.com")
	}
	for _, name := range packages.Ecosystems() {
		d := drafts[packages.Ecosystem(name)]
		if d == nil {
			continue
		}
		info, err := s.write(d)
		if err != nil {
			return Imported{}, err
		}
		out.Databases = append(out.Databases, info)
	}
	return out, nil
}

// draft returns the existing database of an ecosystem, to add advisories to it. If there is none,
// the draft is empty, or nil for an advisory that is withdrawn: a database that knows nothing must
// not come from it, because with one the gate passes what it does not name.
func (s *Store) draft(e packages.Ecosystem, withdrawn bool) (*draft, error) {
	f, closeFile, err := s.open(e)
	if errors.Is(err, fs.ErrNotExist) {
		if withdrawn {
			return nil, nil //nolint:nilnil // as above
		}
		return newDraft(e), nil
	}
	if err != nil {
		return nil, err
	}
	defer closeFile()
	d := newDraft(e)
	return d, d.load(f)
}

func (s *Store) open(e packages.Ecosystem) (*file, func(), error) {
	f, err := os.OpenFile(s.path(e), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = damaged(errors.New("it is not a file"))
	}
	var out *file
	if err == nil {
		out, err = decode(f, info.Size(), e)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return out, func() { f.Close() }, nil
}

// write replaces the database of an ecosystem. Readers see the old one or the complete new one.
func (s *Store) write(d *draft) (Info, error) {
	info, blocks, err := d.blocks(time.Now())
	if err != nil {
		return info, err
	}
	info.Packages = len(blocks)
	// The egress gateway reads it as a user without rights.
	return info, durable.ReplaceWith(s.path(d.ecosystem), durable.Options{Mode: 0o644, Sync: true}, func(w io.Writer) error {
		return encode(w, info, blocks)
	})
}

// Listed is a database, or the reason why it cannot be read.
type Listed struct {
	Info
	Damaged bool
}

// List returns the databases, in the order of packages.Ecosystems.
func (s *Store) List() ([]Listed, error) {
	var out []Listed
	for _, name := range packages.Ecosystems() {
		f, closeFile, err := s.open(packages.Ecosystem(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case fault.CodeOf(err) == "advisories_damaged":
			out = append(out, Listed{Info: Info{Ecosystem: packages.Ecosystem(name)}, Damaged: true})
		case err != nil:
			return nil, err
		default:
			closeFile()
			out = append(out, Listed{Info: f.Info})
		}
	}
	return out, nil
}

// Remove removes the database of an ecosystem.
func (s *Store) Remove(e packages.Ecosystem) error {
	if !packages.Known(e) {
		return fault.Newf(fault.Invalid, "advisories_ecosystem", "the package cache has no ecosystem %.100q", string(e))
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = os.Remove(s.path(e))
	if errors.Is(err, fs.ErrNotExist) {
		return missing(e)
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(s.path(e)))
}

// lock keeps other processes from changing the databases, because each import reads what is there
// and writes it again.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(s.path(packages.NPM)), ".lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New(fault.Conflict, "advisories_busy", "another import of advisories is running").WithHint("try again when it has ended")
		}
		return nil, err
	}
	return func() { f.Close() }, nil
}
