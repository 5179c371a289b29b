// Package index owns git's index file: reading it, marking entries in it, and writing it back.
// Unlike other implementations, it preserves the extensions that stay valid after a mark, and
// supports repositories with SHA-256.
package index

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's own checksum, which is no protection here
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/filetree/gitrepo/varint"
)

// MaxBytes bounds the size of an index that is read. It is enough for some four million files.
const MaxBytes = 512 << 20

// Flags of an entry.
const (
	extended     = 0x4000
	nameMask     = 0x0fff
	skipWorktree = 0x4000 // bit of the extended flags
)

const (
	statBytes = 40 // times, device, inode, mode, owner and size
	modeAt    = 24 // offset of the mode in them
)

// ErrSplit is returned for an index whose entries are in another file.
var ErrSplit = errors.New("the index is split")

var errMalformed = errors.New("not an index of git")

// Entry is a tracked file.
type Entry struct {
	Name string
	// Object is the raw object ID.
	Object []byte
	stat   [statBytes]byte
	flags  uint16
	more   uint16 // the extended flags
}

// Mode is the type and the permission bits.
func (e *Entry) Mode() uint32 { return binary.BigEndian.Uint32(e.stat[modeAt:]) }

// Stage is 0, or the side of a merge conflict.
func (e *Entry) Stage() int { return int(e.flags >> 12 & 3) }

// Skipped reports whether git ignores the file in the work tree.
func (e *Entry) Skipped() bool { return e.more&skipWorktree != 0 }

// Index is an index that was read.
type Index struct {
	Entries []Entry // sorted by name and stage

	version    uint32
	hash       int // length of an object ID in bytes
	extensions []extension
	unchecked  bool // it has no checksum
	changed    bool // whether entries were changed since it was read
}

// Tracks reports whether the index has a file for which hidden returns true.
func (x *Index) Tracks(hidden func(name string) bool) bool {
	return slices.ContainsFunc(x.Entries, func(e Entry) bool { return hidden(e.Name) })
}

// extension is an extension of the index, in its file format.
type extension struct {
	name string
	data []byte
}

// Parse parses an index. Its content is not trusted.
func Parse(data []byte) (*Index, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("an index of %d bytes is too large", len(data))
	}
	var errs []error
	for _, size := range []int{sha1.Size, sha256.Size} {
		x, err := parse(data, size)
		if err == nil || errors.Is(err, ErrSplit) {
			return x, err
		}
		errs = append(errs, err)
	}
	return nil, errs[0]
}

// parse parses an index with object IDs of hash bytes.
func parse(data []byte, hash int) (*Index, error) {
	if len(data) < 12+hash || string(data[:4]) != "DIRC" {
		return nil, errMalformed
	}
	body, sum := data[:len(data)-hash], data[len(data)-hash:]
	x := &Index{version: binary.BigEndian.Uint32(data[4:]), hash: hash, unchecked: allZero(sum)}
	if !x.unchecked && !bytes.Equal(x.sum(body), sum) {
		return nil, fmt.Errorf("%w: its checksum is wrong", errMalformed)
	}
	if x.version < 2 || x.version > 4 {
		return nil, fmt.Errorf("%w of a known version", errMalformed)
	}
	count := binary.BigEndian.Uint32(data[8:])
	if int64(count)*int64(statBytes+hash+3) > int64(len(body)) {
		return nil, fmt.Errorf("%w: it has fewer entries than it states", errMalformed)
	}
	x.Entries = make([]Entry, 0, count)
	at, previous := 12, ""
	for range count {
		e, n, err := x.entry(body[at:], previous)
		if err != nil {
			return nil, err
		}
		if k := strings.Compare(previous, e.Name); k > 0 || k == 0 && len(x.Entries) > 0 && x.Entries[len(x.Entries)-1].Stage() >= e.Stage() {
			return nil, fmt.Errorf("%w: its entries are out of order", errMalformed)
		}
		x.Entries = append(x.Entries, e)
		at, previous = at+n, e.Name
	}
	return x, x.parseExtensions(body[at:])
}

// entry reads one entry and returns its length.
func (x *Index) entry(b []byte, previous string) (e Entry, n int, err error) {
	n = statBytes + x.hash + 2
	if len(b) < n {
		return e, 0, errMalformed
	}
	copy(e.stat[:], b)
	e.Object = b[statBytes : statBytes+x.hash : statBytes+x.hash]
	e.flags = binary.BigEndian.Uint16(b[n-2:])
	if e.flags&extended != 0 {
		if len(b) < n+2 || x.version < 3 {
			return e, 0, errMalformed
		}
		e.more = binary.BigEndian.Uint16(b[n:])
		n += 2
	}
	prefix := ""
	if x.version == 4 {
		strip, size := varint.Read(b[n:])
		if size == 0 || strip > uint64(len(previous)) {
			return e, 0, errMalformed
		}
		n += size
		prefix = previous[:len(previous)-int(strip)]
	}
	end := bytes.IndexByte(b[n:], 0)
	switch {
	case end < 0:
		return e, 0, errMalformed
	case prefix == "" && end == 0:
		return e, 0, ErrSplit // the entry stands for one in the other file
	}
	e.Name = prefix + string(b[n:n+end])
	if length := int(e.flags & nameMask); length != min(len(e.Name), nameMask) {
		return e, 0, errMalformed
	}
	if x.version == 4 {
		return e, n + end + 1, nil
	}
	n = padded(n + end)
	if n > len(b) {
		return e, 0, errMalformed
	}
	return e, n, nil
}

// padded returns the length of an entry including the zeros after its name, of which there is at
// least one.
func padded(n int) int { return (n + 8) &^ 7 }

// parseExtensions reads all extensions.
func (x *Index) parseExtensions(b []byte) error {
	for len(b) > 0 {
		if len(b) < 8 {
			return errMalformed
		}
		size := binary.BigEndian.Uint32(b[4:])
		if uint64(size) > uint64(len(b)-8) {
			return errMalformed
		}
		e := extension{string(b[:4]), b[8 : 8+size]}
		if e.name == "link" {
			return ErrSplit
		}
		if e.name[0] >= 'a' && e.name != "sdir" {
			return fmt.Errorf("%w: it needs the unknown extension %q", errMalformed, e.name)
		}
		x.extensions = append(x.extensions, e)
		b = b[8+size:]
	}
	return nil
}

// sum returns the checksum of an index.
func (x *Index) sum(body []byte) []byte {
	if x.hash == sha256.Size {
		s := sha256.Sum256(body)
		return s[:]
	}
	s := sha1.Sum(body) //nolint:gosec // git's own checksum
	return s[:]
}

// allZero reports whether b has only zero bytes.
func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
