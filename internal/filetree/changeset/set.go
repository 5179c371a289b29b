package changeset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"
)

// Set is what a box has changed, as it was at one time.
type Set struct {
	Changes []Change // by path
	// Digest names exactly these changes.
	Digest         string
	Added, Removed int // lines in all
	TakenAt        time.Time
}

// Refuses are the flags of what never comes out, whatever a policy says.
func (f Flag) Refuses() bool {
	return f == LinkOut || f == Setuid || f == Special || f == TooLarge || f == SecretName || f == HiddenChanged || f == GitUnchecked
}

// Has reports whether a change has a flag.
func (c Change) Has(f Flag) bool { return slices.Contains(c.Flags, f) }

// Refused reports whether a change never comes out.
func (c Change) Refused() bool { return slices.ContainsFunc(c.Flags, Flag.Refuses) }

// Digest names exactly these changes, in this order: what becomes of each
// path, with its type, mode, content and target, and what it does to what is
// outside. What was shown or approved is that and nothing else.
func Digest(changes []Change) string {
	h := sha256.New()
	for i := range changes {
		c := &changes[i]
		// Each part says how long it is, so that no two lists look alike.
		fmt.Fprintf(h, "%d:%s %s %s ", len(c.Path), c.Path, c.Op, c.Conflict)
		digestEntry(h, c.New)
		digestEntry(h, c.Outside)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func digestEntry(h hash.Hash, e *Entry) {
	if e == nil {
		h.Write([]byte("- "))
		return
	}
	fmt.Fprintf(h, "%s %o %d %s %d:%s ", e.Type, e.Mode&comesOut, e.Size, e.Sum, len(e.Target), e.Target)
}

// Select chooses among changes and adds what they need to be possible: the
// new directories that new files are in. It takes out directories that would
// not be empty. Refused changes are never chosen.
func Select(all []Change, want func(Change) bool) (chosen, left []Change) {
	index := make(map[string]int, len(all))
	take := make([]bool, len(all))
	for i, c := range all {
		index[c.Path] = i
		take[i] = !c.Refused() && want(c)
	}
	for i, c := range all {
		if !take[i] || c.Op == Removed {
			continue
		}
		take[i] = takeAbove(all, index, take, c.Path)
	}
	// From the deepest up: a directory that is to go, or to be a file, stays
	// while something in it stays.
	stays := stayed{}
	for i, c := range all {
		if !take[i] {
			stays.add(c.Path)
		}
	}
	for i, v := range slices.Backward(all) {
		if take[i] && v.Old != nil && v.Old.Type == Dir && (v.New == nil || v.New.Type != Dir) && stays[v.Path] {
			take[i] = false
			stays.add(v.Path)
		}
	}
	for i, c := range all {
		if take[i] {
			chosen = append(chosen, c)
		} else {
			left = append(left, c)
		}
	}
	return chosen, left
}

// takeAbove takes the directories above a path that have to be made first. It
// is false if one of them may not come out.
func takeAbove(all []Change, index map[string]int, take []bool, name string) bool {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		above, known := index[name[:i]]
		if !known || take[above] {
			continue
		}
		c := all[above]
		if old := c.Old; old != nil && old.Type == Dir {
			continue // it is there
		}
		if c.Refused() || c.New == nil || c.New.Type != Dir {
			return false
		}
		take[above] = true
	}
	return true
}

// stayed are the directories above what stays. Each is noted once, however much
// is in it: a box may remove a tree of any size.
type stayed map[string]bool

func (s stayed) add(name string) {
	for i := strings.LastIndexByte(name, '/'); i > 0 && !s[name[:i]]; i = strings.LastIndexByte(name[:i], '/') {
		s[name[:i]] = true
	}
}
