// Package objects owns reading git's objects from files that a sandbox may have written: loose
// objects and packs. It limits the memory that they can use, and checks each object against its
// name. It starts no program and reads no configuration.
package objects

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's names of objects
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limits of what is read.
const (
	maxObject = 32 << 20 // of a commit, a tree or a tag
	maxTotal  = 4 << 30  // total that one Reader unpacks
	maxChain  = 4096     // length of a chain of deltas
	maxPacks  = 4096
	maxTrees  = 2_000_000 // pairs of entries that one Reader compares
)

// ErrMissing is returned for a missing object.
var ErrMissing = errors.New("the object is missing")

var errMalformed = errors.New("a malformed object")

// Files is a directory of objects.
type Files interface {
	// Open opens a file by its path in the directory.
	Open(name string) (*os.File, error)
	// Names lists the files in the directory "pack".
	Names() ([]string, error)
}

// Root is a directory of the host.
type Root struct{ *os.Root }

// Open implements Files.
func (r Root) Open(name string) (*os.File, error) { return r.OpenFile(name, os.O_RDONLY, 0) }

// Names implements Files.
func (r Root) Names() ([]string, error) {
	d, err := r.OpenFile("pack", os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// Reader reads objects of one repository from several directories.
type Reader struct {
	dirs  []dir
	left  int64
	trees int // remaining comparisons
	close []io.Closer
	cache objectCache
}

type dir struct {
	files Files
	packs []*pack
}

// NewReader returns a Reader that searches the directories in order.
func NewReader(all ...Files) (*Reader, error) {
	r := &Reader{left: maxTotal, trees: maxTrees}
	for _, f := range all {
		d := dir{files: f}
		names, err := f.Names()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, r.Close())
		}
		slices.Sort(names)
		for _, name := range names {
			base, ok := strings.CutSuffix(name, ".idx")
			if !ok || !slices.Contains(names, base+".pack") || len(d.packs) == maxPacks {
				continue
			}
			d.packs = append(d.packs, &pack{files: f, base: path.Join("pack", base)})
		}
		r.dirs = append(r.dirs, d)
	}
	return r, nil
}

// Close closes the open packs.
func (r *Reader) Close() error {
	var errs []error
	for _, c := range r.close {
		errs = append(errs, c.Close())
	}
	r.close = nil
	return errors.Join(errs...)
}

// Read returns an object by its name, which is its checksum in hexadecimal.
func (r *Reader) Read(id string) (kind string, data []byte, err error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != sha1.Size && len(raw) != sha256.Size {
		return "", nil, fmt.Errorf("%w: %.80q is not an object name", errMalformed, id)
	}
	if o, ok := r.cache.find(objectKey{id: id}); ok {
		return o.kind, o.data, nil
	}
	missing := ErrMissing
	for i := range r.dirs {
		kind, data, err = r.find(&r.dirs[i], id, raw, 0)
		if err != nil {
			if !errors.Is(err, ErrMissing) {
				missing = err // another directory may have an intact copy
			}
			continue
		}
		if !bytes.Equal(nameOf(kind, data, len(raw)), raw) {
			missing = fmt.Errorf("%w: %s does not match its name", errMalformed, id)
			continue
		}
		r.cache.add(objectKey{id: id}, object{kind, data})
		return kind, data, nil
	}
	return "", nil, missing
}

// nameOf returns the raw name of an object: its checksum.
func nameOf(kind string, data []byte, size int) []byte {
	head := []byte(kind + " " + strconv.Itoa(len(data)) + "\x00")
	if size == sha256.Size {
		h := sha256.New()
		h.Write(head)
		h.Write(data)
		return h.Sum(nil)
	}
	h := sha1.New() //nolint:gosec // git's names of objects
	h.Write(head)
	h.Write(data)
	return h.Sum(nil)
}

// find reads an object from one directory, without a check of its name.
func (r *Reader) find(d *dir, id string, raw []byte, chain int) (kind string, data []byte, err error) {
	if kind, data, err = r.loose(d.files, id); !errors.Is(err, ErrMissing) {
		return kind, data, err
	}
	for _, p := range d.packs {
		at, err := p.lookup(r, raw)
		if errors.Is(err, ErrMissing) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		return r.packed(d, p, at, len(raw), chain)
	}
	return "", nil, ErrMissing
}

// loose reads an object from a file of its own.
func (r *Reader) loose(files Files, id string) (kind string, data []byte, err error) {
	f, err := files.Open(id[:2] + "/" + id[2:])
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrMissing
		}
		return "", nil, err
	}
	defer f.Close()
	z, err := zlib.NewReader(f)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s: %w", errMalformed, id, err)
	}
	in := bufio.NewReader(io.LimitReader(z, maxObject+64))
	head, err := in.ReadSlice(0)
	if err != nil || len(head) > 64 {
		return "", nil, fmt.Errorf("%w: %s has no head", errMalformed, id)
	}
	kind, size, _ := strings.Cut(string(head[:len(head)-1]), " ")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 || n > maxObject {
		return "", nil, fmt.Errorf("%w: %s has %.20q bytes", errMalformed, id, size)
	}
	data, err = r.exactly(in, n)
	return kind, data, err
}

// exactly reads data that must have a certain size.
func (r *Reader) exactly(in io.Reader, size int64) ([]byte, error) {
	if r.left -= size; r.left < 0 {
		return nil, errors.New("the objects are larger than the limit")
	}
	var out bytes.Buffer
	// The stated size is not trusted: memory is allocated as data arrives.
	n, err := io.Copy(&out, io.LimitReader(in, size+1))
	if err != nil || n != size {
		return nil, fmt.Errorf("%w: its size differs from the stated one: %v", errMalformed, err)
	}
	return out.Bytes(), nil
}
