package index

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/filetree/gitrepo/varint"
)

// Skip marks the tracked files for which hidden returns true, so that git does not take their
// absence for a removal. It returns the number of marked files.
func (x *Index) Skip(hidden func(name string) bool) int {
	n := 0
	for i := range x.Entries {
		e := &x.Entries[i]
		if e.Stage() == 0 && !e.Skipped() && hidden(e.Name) {
			e.flags |= extended
			e.more |= skipWorktree
			n++
		}
	}
	return n
}

// Restore replaces the entries of files for which hidden returns true by those of another index,
// including entries that only one of them has. It reports whether any differed.
func (x *Index) Restore(from *Index, hidden func(name string) bool) bool {
	isHidden := func(e Entry) bool { return hidden(e.Name) }
	mine := slices.Collect(filter(x.Entries, isHidden))
	theirs := slices.Collect(filter(from.Entries, isHidden))
	if slices.EqualFunc(mine, theirs, func(a, b Entry) bool { return a.same(&b) && a.more == b.more && a.stat == b.stat }) {
		return false
	}
	all := slices.AppendSeq(theirs, filter(x.Entries, func(e Entry) bool { return !isHidden(e) }))
	slices.SortStableFunc(all, func(a, b Entry) int {
		if k := strings.Compare(a.Name, b.Name); k != 0 {
			return k
		}
		return a.Stage() - b.Stage()
	})
	x.Entries, x.changed = all, true
	return true
}

// filter returns the entries for which keep returns true.
func filter(list []Entry, keep func(Entry) bool) func(yield func(Entry) bool) {
	return func(yield func(Entry) bool) {
		for _, e := range list {
			if keep(e) && !yield(e) {
				return
			}
		}
	}
}

// Fits reports whether two indexes belong to repositories with object IDs of the same length.
func (x *Index) Fits(y *Index) bool { return x.hash == y.hash }

// Same reports whether two indexes track the same files with the same content, regardless of their
// data about the work tree.
func (x *Index) Same(y *Index) bool {
	return x.Fits(y) && slices.EqualFunc(x.Entries, y.Entries, func(a, b Entry) bool { return a.same(&b) && a.more == b.more })
}

// Other returns the first file for which of returns true and that the two indexes track
// differently, or "".
func (x *Index) Other(y *Index, of func(name string) bool) string {
	mine := slices.Collect(filter(x.Entries, func(e Entry) bool { return of(e.Name) }))
	theirs := slices.Collect(filter(y.Entries, func(e Entry) bool { return of(e.Name) }))
	for i := range max(len(mine), len(theirs)) {
		switch {
		case i >= len(mine):
			return theirs[i].Name
		case i >= len(theirs):
			return mine[i].Name
		case !mine[i].same(&theirs[i]):
			return min(mine[i].Name, theirs[i].Name)
		}
	}
	return ""
}

// same compares two entries without their data about the work tree.
func (e *Entry) same(o *Entry) bool {
	const compared = 0xb000 // the bits for assume-unchanged and the stage
	return e.Name == o.Name && e.Mode() == o.Mode() && bytes.Equal(e.Object, o.Object) && e.flags&compared == o.flags&compared
}

// Bytes returns the index in its file format.
func (x *Index) Bytes() []byte {
	version := x.version
	if version == 2 && slices.ContainsFunc(x.Entries, func(e Entry) bool { return e.more != 0 }) {
		version = 3
	}
	var out []byte
	out = append(out, "DIRC"...)
	out = binary.BigEndian.AppendUint32(out, version)
	out = binary.BigEndian.AppendUint32(out, uint32(len(x.Entries)))
	before := ""
	for i := range x.Entries {
		out = x.Entries[i].append(out, version, before)
		before = x.Entries[i].Name
	}
	for _, e := range x.extensions {
		switch {
		case e.name == "EOIE", e.name == "IEOT":
			continue // they contain the offsets of entries, which have changed
		case x.changed && e.name != "REUC" && e.name != "sdir":
			continue // they describe the earlier entries
		}
		out = append(out, e.name...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(e.data)))
		out = append(out, e.data...)
	}
	if x.unchecked {
		return append(out, make([]byte, x.hash)...)
	}
	return append(out, x.sum(out)...)
}

// append appends the entry in its file format. before is the name of the previous entry.
func (e *Entry) append(out []byte, version uint32, before string) []byte {
	start := len(out)
	out = append(out, e.stat[:]...)
	out = append(out, e.Object...)
	flags := e.flags &^ extended
	if e.more != 0 {
		flags |= extended
	}
	out = binary.BigEndian.AppendUint16(out, flags)
	if e.more != 0 {
		out = binary.BigEndian.AppendUint16(out, e.more)
	}
	if version == 4 {
		same := 0
		for same < len(before) && same < len(e.Name) && before[same] == e.Name[same] {
			same++
		}
		out = varint.Append(out, uint64(len(before)-same))
		out = append(out, e.Name[same:]...)
		return append(out, 0)
	}
	out = append(out, e.Name...)
	return append(out, make([]byte, padded(len(out)-start)-(len(out)-start))...)
}
