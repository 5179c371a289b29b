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

// Manifest is the state of a workspace at the start of its sandbox.
type Manifest struct {
	// Start has all entries, by path. It is nil in mode copy, where the copy itself is the state.
	Start []changeset.Entry
	// Brought has files as they were on the host after changes were applied. An entry without a
	// type was removed.
	Brought []changeset.Entry
}

// Manifests is the directory of all manifests. It is safe for concurrent use by one process.
type Manifests struct {
	path string
	mu   sync.Mutex // held while changing a manifest
}

// NewManifests returns the directory, which the first Make creates.
func NewManifests(path string) *Manifests { return &Manifests{path: path} }

// manifestForm is the version of the manifest format.
const manifestForm = 1

// stored is the first value of a file. It is followed by the number of rows that it states.
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

// Part is an additional directory in a manifest, as if it were below the first one.
type Part struct{ Under, Source string }

// Make records a directory's entries without their contents. skip excludes paths and everything
// below them. If Make fails, no manifest is left.
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

// Find returns a sandbox's manifest. The error is NotFound if there is none.
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
		return Manifest{}, fault.New(fault.NotFound, "manifest_gone", "the manifest of the workspace is missing")
	}
	return Manifest{}, fmt.Errorf("manifest: %w", err)
}

// Refer gives a sandbox a copy of another one's manifest. Later changes of one do not affect the
// other.
func (m *Manifests) Refer(sandbox, to string) error {
	if err := errors.Join(ids.CheckSandbox(sandbox), ids.CheckSandbox(to)); err != nil {
		return err
	}
	err := os.Link(filepath.Join(m.path, to), filepath.Join(m.path, sandbox))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "manifest_gone", "the manifest of the workspace is missing")
	}
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// Amend records files as changeset.Apply left them on the host. Later changes of the sandbox are
// compared with these.
func (m *Manifests) Amend(sandbox string, now []changeset.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	had, err := m.Find(sandbox)
	if err != nil && fault.CodeOf(err) != "manifest_gone" {
		return err // in mode copy there is no manifest yet
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

// write replaces a manifest atomically, so that readers, and sandboxes that refer to the same file,
// see a complete one.
func (m *Manifests) write(sandbox string, all Manifest, replace bool) error {
	if err := os.MkdirAll(m.path, 0o700); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	final := filepath.Join(m.path, sandbox)
	if _, err := os.Lstat(final); err == nil && !replace {
		return fault.New(fault.Exists, "manifest_exists", "the sandbox has a manifest")
	}
	o := durable.Options{Draft: ".new-*"} // not the ID of a sandbox
	if err := durable.ReplaceWith(final, o, func(w io.Writer) error { return encode(w, all) }); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// compressFrom is the number of entries below which compression is not worth its memory: a
// compressor needs more than a megabyte.
const compressFrom = 64

func encode(w io.Writer, all Manifest) error {
	var packed io.WriteCloser = &storedBlocks{w: w}
	if len(all.Start)+len(all.Brought) > compressFrom {
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
			n := min(len(part), rowsPerBatch)
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

// rowsPerBatch limits the rows that are in memory twice while a manifest is written or read.
const rowsPerBatch = 4096

func read(r io.Reader) (Manifest, error) {
	in := gob.NewDecoder(flate.NewReader(r))
	var head stored
	if err := in.Decode(&head); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if head.Form != manifestForm {
		return Manifest{}, fault.New(fault.Conflict, "manifest_form", "the manifest of the workspace was written by another version")
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

// Remove removes a sandbox's manifest. It is no error if there is none.
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

// writeTime exceeds the time for writing a manifest.
const writeTime = time.Hour

// List returns the sandboxes that have a manifest. It removes unfinished ones that a crash left.
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
			// A recent one belongs to another process that is writing it.
			if info, gone := e.Info(); gone == nil && time.Since(info.ModTime()) > writeTime {
				err = errors.Join(err, os.Remove(filepath.Join(m.path, e.Name())))
			}
		}
	}
	return list, err
}
