package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crannog/crannog/internal/fault"
)

// Flaw is a kind of difference between an audit log and what was written.
type Flaw string

const (
	Changed    Flaw = "changed"    // an entry was changed
	Missing    Flaw = "missing"    // an entry was removed
	Reordered  Flaw = "reordered"  // an entry is at another place
	Cut        Flaw = "cut"        // the end was cut off
	Forked     Flaw = "forked"     // the history differs from the one that a tree head covers
	Unsigned   Flaw = "unsigned"   // a tree head without a signature by this log's key
	Unreadable Flaw = "unreadable" // the files cannot be read
)

// Verification is the result of reading the whole log.
type Verification struct {
	OK      bool
	Entries int64 // number of entries read
	First   int64 // number of the first kept entry
	// Seq is the first entry that differs, Flaw the kind of difference, and Text its description.
	Seq  int64
	Flaw Flaw
	Text string
	// Checkpoints is the number of tree heads that match, and Uncovered the number of entries after
	// the newest of them.
	Checkpoints int
	Uncovered   int64
}

// finding is an error that describes a defect of an audit log.
type finding struct {
	seq  int64
	flaw Flaw
	text string
}

func (f *finding) Error() string { return f.text }

// found returns a finding.
func found(seq int64, flaw Flaw, format string, args ...any) error {
	return &finding{seq, flaw, fmt.Sprintf(format, args...)}
}

// mark is the root hash that the tree had at a size.
type mark struct {
	size int64
	root tlog.Hash
}

// marksOf checks the signatures of notes. The error is for the first note that is not signed. The
// others are returned anyway.
func marksOf(key note.Verifier, notes []string) (out []mark, unsigned error) {
	for _, text := range notes {
		c, root, err := openCheckpoint(text, key)
		if err != nil && unsigned == nil {
			unsigned = found(0, Unsigned, "%v", err)
		}
		if err == nil {
			out = append(out, mark{c.Size, root})
		}
	}
	slices.SortFunc(out, func(a, b mark) int { return cmp.Compare(a.size, b.size) })
	return out, unsigned
}

// marks are root hashes that are compared with a tree while it grows.
type marks struct {
	left   []mark // not compared yet, sorted by size
	agreed int64  // size of the last matching mark
	count  int    // matching marks
}

// at compares the marks that have the tree's current size. Callers handle marks of a smaller size.
func (m *marks) at(tree *frontier) error {
	for len(m.left) > 0 && m.left[0].size == tree.size {
		if m.left[0].root != tree.root() {
			return found(m.agreed, Forked, "entries from %d to %d are not those that were signed: the tree head of %d entries covers others",
				m.agreed, tree.size-1, tree.size)
		}
		m.agreed, m.left, m.count = tree.size, m.left[1:], m.count+1
	}
	return nil
}

// chain checks the hashes from line to line.
type chain struct {
	started bool
	hash    string // hash of the last line
	last    int64  // number of the last line
	suspect bool   // the last line does not match the previous one
}

// link compares the hash of the last line with prev, the hash in the next line or in the line for
// omitted entries. After a mismatch, one of the two lines was changed. If the next pair mismatches
// too, the line that both pairs share was changed.
func (c *chain) link(prev string) error {
	if !c.started {
		return nil
	}
	broken := prev != c.hash
	switch {
	case c.suspect && broken:
		return found(c.last, Changed, "entry %d was changed", c.last)
	case c.suspect:
		return found(c.last-1, Changed, "entry %d was changed: entry %d has another hash of it", c.last-1, c.last)
	}
	c.suspect = broken
	return nil
}

// line makes a line the last line of the chain.
func (c *chain) line(seq int64, line []byte) { c.started, c.last, c.hash = true, seq, hashOf(line) }

// end is called if no line follows.
func (c *chain) end() error {
	if c.suspect {
		return found(c.last-1, Changed, "entry %d was changed: entry %d has another hash of it", c.last-1, c.last)
	}
	return nil
}

// misplaced returns the finding for the entry other at the position of the entry seq. later reports
// whether seq follows further on.
func misplaced(seq, other int64, later bool) error {
	switch {
	case other < seq:
		return found(seq, Reordered, "entry %d is where entry %d should be", other, seq)
	case later:
		return found(seq, Reordered, "entry %d is not in its place, which has entry %d", seq, other)
	}
	return found(seq, Missing, "entry %d is missing: entry %d is in its place", seq, other)
}

// Notes finds tree heads in a file: notes one after the other, or lines of JSON with a field
// "note", at the top level or in "checkpoint".
func Notes(data []byte) ([]string, error) {
	var out []string
	var text strings.Builder
	signed := false
	// finish adds the collected text to out, if it is a signed note.
	finish := func() error {
		if !signed && strings.TrimSpace(text.String()) != "" {
			return fault.New(fault.Invalid, "checkpoint_invalid", "the file contains text that is not a signed tree head")
		}
		if signed {
			out = append(out, text.String())
		}
		text.Reset()
		signed = false
		return nil
	}
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("{")) && text.Len() == 0 {
			n, err := noteIn(line)
			if err != nil {
				return nil, err
			}
			out = append(out, n)
			continue
		}
		signature := bytes.HasPrefix(line, []byte("— "))
		if signed && !signature {
			if err := finish(); err != nil {
				return nil, err
			}
		}
		if text.Len() == 0 && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		text.Write(line)
		signed = signed || signature
	}
	return out, finish()
}

// noteIn returns the note in a line of JSON.
func noteIn(line []byte) (string, error) {
	var v struct {
		Note       string `json:"note"`
		Checkpoint struct {
			Note string `json:"note"`
		} `json:"checkpoint"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return "", fault.Wrap(err, fault.Invalid, "checkpoint_invalid", "a line of the file is not JSON")
	}
	if n := cmp.Or(v.Note, v.Checkpoint.Note); n != "" {
		return n, nil
	}
	return "", fault.New(fault.Invalid, "checkpoint_invalid", "a line of the file has no signed tree head")
}
