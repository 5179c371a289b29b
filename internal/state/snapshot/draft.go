package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// maxSmallBytes limits the files that are read completely before a restore begins.
const maxSmallBytes = 256 << 20

// Image is a committed image.
type Image struct {
	ID     string
	Parent string // or ""
	// Sum authenticates the image: the caller stores it and passes it to Lease. It is a key, so it
	// must not appear in answers and logs, and must be stored where a process that can write to the
	// images cannot read it.
	Sum   string
	Bytes int64 // size of its files, even if they share disk blocks
}

// Draft is an image that is being written.
type Draft struct {
	id string
	*stage
	ended bool
}

// Begin starts a new image. It returns Exhausted with the code "snapshot_budget" if images and
// drafts fill the budget even after copies were removed, and with "disk_full" if the disk is full.
func (s *Images) Begin(id string) (*Draft, error) {
	if err := validID(id); err != nil {
		return nil, err
	}
	if _, err := s.root.Lstat(imagePath(id)); err == nil {
		return nil, fault.Newf(fault.Exists, "snapshot_exists", "there is an image of snapshot %s", id)
	}
	if err := s.ready(); err != nil {
		return nil, fmt.Errorf("begin image %s: %w", id, err)
	}
	if err := s.admit(); err != nil {
		return nil, err
	}
	if err := s.checkDisk(); err != nil {
		return nil, err
	}
	g, err := s.newStage(id)
	if err != nil {
		return nil, err
	}
	return &Draft{id: id, stage: g}, nil
}

// Dir is an empty private directory for the engine's files. The engine declares its final content
// to Commit.
func (d *Draft) Dir() string { return filepath.Join(d.s.dir, d.name) }

// Fault classifies an error of writing into the draft. It returns Exhausted with the code
// "disk_full" if the error text or the disk shows that the disk is full, and otherwise the error
// itself. It needs the text because an engine's errors come from another process.
func (d *Draft) Fault(err error) error {
	if err == nil || fault.KindOf(err) != fault.Internal {
		return err
	}
	free, ferr := d.s.free()
	if strings.Contains(err.Error(), unix.ENOSPC.Error()) || ferr == nil && free < 1<<20 {
		return diskFault(fmt.Errorf("%w: %w", unix.ENOSPC, err))
	}
	return diskFault(err)
}

// Abort removes the draft. Its blocks are freed soon after. After Commit it does nothing.
func (d *Draft) Abort() error {
	if !d.ended {
		d.ended = true
		// Rename first, so that the next draft does not wait for the removal.
		if name := goneName(); d.s.root.Rename(d.name, name) == nil {
			d.name = name
		}
		d.s.clear(gone{name: d.name, dir: d.dir})
	}
	return nil
}

// Commit publishes the draft as an image of these parts, atomically. From then on no process may
// write to its files. The image survives the end of this process at once, and a power failure after
// Deduplicate or Persist. If Commit fails, there is neither a draft nor an image.
func (d *Draft) Commit(ctx context.Context, parent string, parts []Part) (_ Image, err error) {
	if d.ended {
		return Image{}, errors.New("commit a draft that has ended")
	}
	defer func() {
		if err != nil {
			d.ended = true
			err = errors.Join(d.Fault(err), d.drop())
		}
	}()
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	if parent != "" {
		if err := validID(parent); err != nil {
			return Image{}, err
		}
	}
	m, err := d.describe(parent, parts)
	if err != nil {
		return Image{}, fmt.Errorf("commit %s: %w", d.id, err)
	}
	sum := newSum()
	data, err := m.seal(sum)
	if err != nil {
		return Image{}, err
	}
	d.s.step("commit: manifest")
	if err := d.write(manifestFile, data, false); err != nil {
		return Image{}, err
	}
	taken, err := d.s.blocks(d.name)
	if err != nil {
		return Image{}, fmt.Errorf("commit %s: %w", d.id, err)
	}
	if err := d.s.makeRoom(taken, 0); err != nil {
		return Image{}, err
	}
	defer func() {
		if err != nil {
			d.s.claim(-taken)
		}
	}()
	d.s.step("commit: rename")
	err = d.s.changeAndCount(taken, func() error {
		// A rename does not replace a directory that is not empty.
		err := d.s.root.Rename(d.name, imagePath(d.id))
		if err == nil {
			d.s.space.claimed -= taken
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return Image{}, fault.Newf(fault.Exists, "snapshot_exists", "there is an image of snapshot %s", d.id)
	} else if err != nil {
		return Image{}, fmt.Errorf("commit %s: %w", d.id, err)
	}
	d.ended = true
	d.s.remember(d.id, sum)
	d.s.step("commit: end")
	// Closing the descriptor unlocks the image, which can then be leased.
	d.dir.Close()
	return Image{ID: d.id, Parent: parent, Sum: sum, Bytes: m.bytes()}, nil
}

// describe describes the files of a draft, which must be exactly the declared ones.
func (d *Draft) describe(parent string, parts []Part) (manifest, error) {
	m := manifest{Format: manifestFormat, ID: d.id, Parent: parent, Made: d.s.now().UnixNano()}
	if err := checkParts(parts); err != nil {
		return m, err
	}
	entries, err := fs.ReadDir(d.s.root.FS(), d.name)
	if err != nil {
		return m, err
	}
	for _, e := range entries {
		if !slices.ContainsFunc(parts, func(p Part) bool { return p.Name == e.Name() }) {
			return m, fmt.Errorf("unexpected file %q in a draft", e.Name())
		}
	}
	for _, p := range parts {
		if p.Kind != Small {
			m.Bulk, err = d.bulk(p)
		} else {
			var small part
			small, err = d.small(p.Name)
			m.Parts = append(m.Parts, small)
		}
		if err != nil {
			return m, err
		}
	}
	return m, m.validate()
}

// small reads a file, and records its hash.
func (d *Draft) small(name string) (part, error) {
	f, before, err := d.take(name)
	if err != nil {
		return part{}, err
	}
	defer f.Close()
	if before.Bytes > maxSmallBytes {
		return part{}, fmt.Errorf("%s has %d bytes", name, before.Bytes)
	}
	h := sha256.New()
	if n, err := io.Copy(h, f); err != nil || n != before.Bytes {
		return part{}, fmt.Errorf("read %s: %d of %d bytes: %w", name, n, before.Bytes, errors.Join(err, errShort))
	}
	if after, err := identify(f); err != nil || after != before {
		return part{}, errors.Join(fmt.Errorf("%s is still being written", name), err)
	}
	sum := digest(h.Sum(nil))
	d.s.known.add(before, sum)
	return part{Name: name, Bytes: before.Bytes, SHA256: hex.EncodeToString(sum[:])}, nil
}

// bulk reads only a file's metadata, because reading tens of megabytes would take most of a
// snapshot's time.
func (d *Draft) bulk(p Part) (bulk, error) {
	f, seen, err := d.take(p.Name)
	if err != nil {
		return bulk{}, err
	}
	return bulk{Name: p.Name, Kind: p.Kind, Bytes: seen.Bytes, Seen: &seen, Boot: d.s.boot}, f.Close()
}

// take opens a file of the draft and gives it private permissions.
func (d *Draft) take(name string) (*os.File, identity, error) {
	f, err := openRegular(d.s.root, d.path(name))
	if err != nil {
		return nil, identity{}, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && st.Nlink != 1 {
		// A process could later write to the file by its other name.
		err = fmt.Errorf("%s has %d names", name, st.Nlink)
	}
	if err == nil && st.Mode&0o777 != 0o600 {
		err = f.Chmod(0o600)
	}
	seen, ierr := identify(f)
	if err = errors.Join(err, ierr); err != nil {
		return nil, identity{}, errors.Join(err, f.Close())
	}
	return f, seen, nil
}

// remember stores the key of an image for Deduplicate.
func (s *Images) remember(id, sum string) {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	s.notes.sums[id] = sum
}
