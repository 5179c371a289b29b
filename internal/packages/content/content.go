// Package content owns the inspection of what packages contain: archives that unpack to too much,
// entries that leave their directory, native programs where none belong, and names that look like
// those of other packages.
package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/crannog/crannog/internal/host/text"
)

// Code is the kind of a finding.
type Code string

// The kinds of findings.
const (
	// Bomb is an archive that unpacks to far more than its size, or whose directory lies.
	Bomb Code = "bomb"
	// Escape is an entry that leaves the directory into which the archive is unpacked, or that gets
	// privileges.
	Escape Code = "escape"
	// Executable is a native program where none belongs.
	Executable Code = "executable"
	// Unreadable is an archive, or a part of it, that could not be inspected. Without this finding,
	// a damaged archive that some client can read would pass.
	Unreadable Code = "unreadable"
	// LookAlike is a name that is nearly that of another package.
	LookAlike Code = "look-alike"
)

// codes are in the order in which findings are listed.
var codes = []Code{Bomb, Escape, Executable, Unreadable, LookAlike}

var sentences = map[Code]string{
	Bomb:       "it unpacks to more than it should",
	Escape:     "it has entries that leave its directory or get privileges",
	Executable: "it has native programs where none belong",
	Unreadable: "not all of it can be inspected",
	LookAlike:  "its name is nearly that of another package",
}

// Limits of an archive.
const (
	maxUnpacked = 4 << 30
	maxEntries  = 200_000
	// maxRatio is the maximum of unpacked to packed bytes, beyond ratioFrom unpacked bytes. Packages
	// of text rarely exceed 20, and deflate cannot exceed about 1000.
	maxRatio  = 200
	ratioFrom = 32 << 20
)

// Limits of a finding.
const (
	// maxDetails limits how many entries a finding names.
	maxDetails = 3
	maxPath    = 120
	// MaxFindings limits the findings of one package.
	MaxFindings = 5
)

// Finding is what is wrong with a package. There is at most one of each code.
type Finding struct {
	Code Code `json:"code"`
	// Details are at most a few entries, in printable characters.
	Details []string `json:"details"`
	// More is the number of further entries.
	More int `json:"more,omitempty"`
}

// String returns the finding as a text of limited length.
func (f Finding) String() string {
	s := string(f.Code) + ": " + sentences[f.Code] + " (" + strings.Join(f.Details, ", ")
	if f.More > 0 {
		s += fmt.Sprintf(" and %d more", f.More)
	}
	return s + ")"
}

// errStop ends an inspection after a finding, because going on would cost too much.
var errStop = errors.New("the inspection ends here")

// inspection is the inspection of one archive.
type inspection struct {
	from  *source
	size  int64
	form  Form
	found map[Code]*Finding
	// unpacked counts the bytes that were read, and declared those that entries announce.
	unpacked, declared int64
	entries            int
	links              map[string]bool // the names of symbolic links
	platform           bool            // the package says that it is for one platform
}

// Inspect returns what is wrong with an archive. It reads the archive once, and keeps nothing of it
// in memory but names of links and, of a zip, the directory. An error is one of reading content or
// of ctx, never one of the archive.
func Inspect(ctx context.Context, form Form, content io.ReaderAt, size int64) ([]Finding, error) {
	i := &inspection{
		from: &source{ctx: ctx, content: content}, size: size, form: form,
		found: map[Code]*Finding{}, links: map[string]bool{},
	}
	var err error
	switch form.archive {
	case tarArchive:
		err = i.tar()
	case zipArchive:
		err = i.zip()
	default:
		i.add(Unreadable, "the file", "is of a kind that is not inspected")
	}
	if i.from.err != nil {
		return nil, i.from.err
	}
	if err != nil && !errors.Is(err, errStop) {
		i.add(Unreadable, "the archive", "cannot be read: "+text.ASCII(err.Error(), maxPath))
	}
	if i.platform {
		delete(i.found, Executable)
	}
	var out []Finding
	for _, c := range codes {
		if f := i.found[c]; f != nil {
			out = append(out, *f)
		}
	}
	return out, nil
}

// add records a finding about an entry.
func (i *inspection) add(c Code, name, what string) {
	f := i.found[c]
	if f == nil {
		f = &Finding{Code: c}
		i.found[c] = f
	}
	if len(f.Details) == maxDetails {
		f.More++
		return
	}
	f.Details = append(f.Details, text.ASCII(name, maxPath)+" "+what)
}

// bomb records that the archive is too large, and ends the inspection.
func (i *inspection) bomb(what string) error {
	i.add(Bomb, "the archive", what)
	return errStop
}

// entry counts an entry that announces a size.
func (i *inspection) entry(size int64) error {
	if i.entries++; i.entries > maxEntries {
		return i.bomb(fmt.Sprintf("has more than %d entries", maxEntries))
	}
	if size < 0 || size > maxUnpacked {
		return i.bomb("has an entry of more than " + limitText)
	}
	i.declared += size
	return i.within(i.declared)
}

// within ends the inspection if the archive unpacks to too much.
func (i *inspection) within(n int64) error {
	switch {
	case n > maxUnpacked:
		return i.bomb("unpacks to more than " + limitText)
	case n > ratioFrom && n/maxRatio > i.size:
		return i.bomb(fmt.Sprintf("unpacks to more than %d times its size", maxRatio))
	}
	return nil
}

var limitText = fmt.Sprintf("%d GiB", maxUnpacked>>30)

// metered counts what is unpacked, and fails if it is too much.
type metered struct {
	io.Reader
	i *inspection
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.i.unpacked += int64(n)
	if stop := m.i.within(m.i.unpacked); stop != nil {
		return n, stop
	}
	return n, err
}

// source reads the file. It remembers errors that are not about the archive, and limits what the
// directory of a zip may take.
type source struct {
	ctx     context.Context
	content io.ReaderAt
	err     error
	// limited is set while left limits the bytes that may be read.
	limited bool
	left    int64
}

var (
	errBudget = errors.New("the directory is too large")
	errOffset = errors.New("an entry is before the beginning")
)

// ReadAt implements io.ReaderAt.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if err := s.ctx.Err(); err != nil {
		s.err = err
		return 0, err
	}
	if off < 0 {
		return 0, errOffset // The archive says so, and it is no error of the file.
	}
	if s.limited {
		if s.left -= int64(len(p)); s.left < 0 {
			return 0, errBudget
		}
	}
	n, err := s.content.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
