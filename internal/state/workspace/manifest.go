package workspace

import (
	"compress/flate"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/ids"
)

// Manifest is what a workspace was when its sandbox got it.
type Manifest struct {
	// Start is all of it, by path; nil in mode copy, where the copy itself is.
	Start []changeset.Entry
	// Brought are files as they were left outside when changes were applied. One
	// without a type was removed.
	Brought []changeset.Entry
}

// Manifests is the directory of all manifests. It is safe for concurrent use
// by one process.
type Manifests struct {
	path string
	mu   sync.Mutex // one change of a manifest at a time
}

// NewManifests returns the directory, which it makes at the first Make.
func NewManifests(path string) *Manifests { return &Manifests{path: path} }

// manifestForm is the number of the form in which manifests are written.
const manifestForm = 1

// stored is the first value of a file. So many rows follow.
type stored struct {
	Form           int
	Start, Brought int
}

// row is an entry as it is stored.
type row struct {
	Path, Target string
	Type         changeset.Type
	Mode         uint32
	Size         int64
	MTime, CTime int64
	Ino          uint64
	Opaque       bool
}

// Part is a directory that a manifest has beside its first, as if it were below that.
type Part struct{ Under, Source string }

// Make writes down what a directory has, without its contents. skip leaves
// paths out, with what is below them. After an error nothing is left.
func (m *Manifests) Make(ctx context.Context, sandbox, source string, skip func(path string) bool, parts ...Part) error {
	if err := ids.CheckSandbox(sandbox); err != nil {
		return err
	}
	start, err := list(ctx, source, skip)
	if err != nil {
		return err
	}
	for _, p := range parts {
		more, err := list(ctx, p.Source, nil)
		if err != nil {
			return err
		}
		for _, e := range more {
			e.Path = path.Join(p.Under, e.Path)
			start = append(start, e)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write(sandbox, Manifest{Start: start}, false)
}

func list(ctx context.Context, source string, skip func(path string) bool) ([]changeset.Entry, error) {
	root, err := os.OpenRoot(source)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	defer root.Close()
	all, err := changeset.Walk(ctx, root, changeset.Bounds{}, skip)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return all, nil
}

// Find returns a sandbox's manifest. One that was never made is a fault of
// kind NotFound.
func (m *Manifests) Find(sandbox string) (Manifest, error) {
	if err := ids.CheckSandbox(sandbox); err != nil {
		return Manifest{}, err
	}
	root, err := os.OpenRoot(m.path)
	if err == nil {
		defer root.Close()
		var f *os.File
		if f, err = root.Open(sandbox); err == nil {
			defer f.Close()
			return read(f)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, fault.New(fault.NotFound, "manifest_gone", "what the workspace was at the sandbox's start is not known")
	}
	return Manifest{}, fmt.Errorf("manifest: %w", err)
}

// Refer gives a sandbox the manifest of another one, as it is now. What is
// amended later in one of them is not in the other.
func (m *Manifests) Refer(sandbox, to string) error {
	if err := errors.Join(ids.CheckSandbox(sandbox), ids.CheckSandbox(to)); err != nil {
		return err
	}
	err := os.Link(filepath.Join(m.path, to), filepath.Join(m.path, sandbox))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "manifest_gone", "what the workspace was at the sandbox's start is not known")
	}
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// Amend notes how files were left outside, which changeset.Apply returns: from
// then on what the sandbox does to them is compared with that.
func (m *Manifests) Amend(sandbox string, now []changeset.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	had, err := m.Find(sandbox)
	if err != nil && fault.CodeOf(err) != "manifest_gone" {
		return err // in mode copy there was nothing to write down yet
	}
	brought := make(map[string]changeset.Entry, len(had.Brought)+len(now))
	for _, e := range slices.Concat(had.Brought, now) {
		brought[e.Path] = e
	}
	had.Brought = had.Brought[:0:0]
	for _, e := range brought {
		had.Brought = append(had.Brought, e)
	}
	slices.SortFunc(had.Brought, func(x, y changeset.Entry) int { return strings.Compare(x.Path, y.Path) })
	return m.write(sandbox, had, true)
}

// write puts a manifest in place in one step, so that a reader, or a sandbox
// that refers to the same file, sees a whole one.
func (m *Manifests) write(sandbox string, all Manifest, replace bool) error {
	if err := os.MkdirAll(m.path, 0o700); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	final := filepath.Join(m.path, sandbox)
	if _, err := os.Lstat(final); err == nil && !replace {
		return fault.New(fault.Exists, "manifest_exists", "the sandbox has a manifest")
	}
	o := durable.Options{Draft: ".new-*"} // no sandbox's ID
	if err := durable.ReplaceWith(final, o, func(w io.Writer) error { return encode(w, all) }); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// few is how many entries are not worth packing: a compressor takes more than a
// megabyte of memory.
const few = 64

func encode(w io.Writer, all Manifest) error {
	var packed io.WriteCloser = &storedBlocks{w: w}
	if len(all.Start)+len(all.Brought) > few {
		var err error
		if packed, err = flate.NewWriter(w, flate.BestSpeed); err != nil {
			return err
		}
	}
	out := gob.NewEncoder(packed)
	if err := out.Encode(stored{manifestForm, len(all.Start), len(all.Brought)}); err != nil {
		return err
	}
	for _, part := range [][]changeset.Entry{all.Start, all.Brought} {
		for len(part) > 0 {
			n := min(len(part), rowsAtOnce)
			rows := make([]row, n)
			for i, e := range part[:n] {
				rows[i] = row{e.Path, e.Target, e.Type, e.Mode, e.Size, e.MTime.UnixNano(), e.CTime.UnixNano(), e.Ino, e.Opaque}
			}
			if err := out.Encode(rows); err != nil {
				return err
			}
			part = part[n:]
		}
	}
	return packed.Close()
}

// rowsAtOnce bounds what is held twice while a manifest is written or read.
const rowsAtOnce = 4096

func read(r io.Reader) (Manifest, error) {
	in := gob.NewDecoder(flate.NewReader(r))
	var head stored
	if err := in.Decode(&head); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if head.Form != manifestForm {
		return Manifest{}, fault.New(fault.Conflict, "manifest_form", "what the workspace was at the sandbox's start was written by another version")
	}
	var all Manifest
	for _, part := range []struct {
		into *[]changeset.Entry
		n    int
	}{{&all.Start, head.Start}, {&all.Brought, head.Brought}} {
		for len(*part.into) < part.n {
			var rows []row
			if err := in.Decode(&rows); err != nil {
				return Manifest{}, fmt.Errorf("manifest: %w", err)
			}
			for _, e := range rows {
				*part.into = append(*part.into, changeset.Entry{
					Path: e.Path, Target: e.Target, Type: e.Type, Mode: e.Mode, Size: e.Size,
					MTime: time.Unix(0, e.MTime), CTime: time.Unix(0, e.CTime), Ino: e.Ino, Opaque: e.Opaque,
				})
			}
		}
	}
	return all, nil
}

// Remove drops a sandbox's manifest. One that is not there is success.
func (m *Manifests) Remove(sandbox string) error {
	if err := ids.CheckSandbox(sandbox); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := os.Remove(filepath.Join(m.path, sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove manifest: %w", err)
	}
	return nil
}

// writeTime is more than writing a manifest takes.
const writeTime = time.Hour

// List names the sandboxes that have a manifest. It removes what a crash left
// of one that was being written.
func (m *Manifests) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var list []string
	for _, e := range entries {
		switch {
		case ids.ValidSandbox(e.Name()):
			list = append(list, e.Name())
		case strings.HasPrefix(e.Name(), ".new-"):
			// A young one is another process's, which is writing it.
			if info, gone := e.Info(); gone == nil && time.Since(info.ModTime()) > writeTime {
				err = errors.Join(err, os.Remove(filepath.Join(m.path, e.Name())))
			}
		}
	}
	return list, err
}
