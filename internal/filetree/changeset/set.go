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

// Set is the change set of a sandbox at a point in time.
type Set struct {
	Changes []Change // sorted by path
	// Digest identifies exactly these changes.
	Digest         string
	Added, Removed int // total number of lines
	TakenAt        time.Time
}

// Refuses reports whether a change with this flag is never applied or exported, regardless of the
// policy.
func (f Flag) Refuses() bool {
	return f == LinkOut || f == Setuid || f == Special || f == TooLarge || f == SecretName || f == HiddenChanged || f == GitUnchecked
}

// Has reports whether a change has a flag.
func (c Change) Has(f Flag) bool { return slices.Contains(c.Flags, f) }

// Refused reports whether a change is never applied or exported.
func (c Change) Refused() bool { return slices.ContainsFunc(c.Flags, Flag.Refuses) }

// Digest returns a hash of exactly these changes, in this order: each path with its new
// type, mode, content and target, and with its effect on the host's file. An approval is
// bound to it, so that a sandbox cannot exchange changes after they were approved.
func Digest(changes []Change) string {
	h := sha256.New()
	for i := range changes {
		c := &changes[i]
		// Each part has a length prefix, so that different lists have different digests.
		fmt.Fprintf(h, "%d:%s %s %s ", len(c.Path), c.Path, c.Op, c.Conflict)
		digestEntry(h, c.New)
		digestEntry(h, c.Outside)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// digestEntry adds an entry to a digest.
func digestEntry(h hash.Hash, e *Entry) {
	if e == nil {
		h.Write([]byte("- "))
		return
	}
	fmt.Fprintf(h, "%s %o %d %s %d:%s ", e.Type, e.Mode&exportedModeBits, e.Size, e.Sum, len(e.Target), e.Target)
}

// Select returns the wanted changes, with the new directories that they need. It omits the removal
// of directories that would not be empty. Refused changes are never selected.
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
		take[i] = takeParents(all, index, take, c.Path)
	}
	// The deepest come first. A directory that is removed or replaced by a file stays if anything
	// in it stays.
	kept := keptDirs{}
	for i, c := range all {
		if !take[i] {
			kept.add(c.Path)
		}
	}
	for i, v := range slices.Backward(all) {
		if take[i] && v.Old != nil && v.Old.Type == Dir && (v.New == nil || v.New.Type != Dir) && kept[v.Path] {
			take[i] = false
			kept.add(v.Path)
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

// takeParents adds the new parent directories of a path. It returns false if one of them is
// refused.
func takeParents(all []Change, index map[string]int, take []bool, name string) bool {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		parent, known := index[name[:i]]
		if !known || take[parent] {
			continue
		}
		c := all[parent]
		if old := c.Old; old != nil && old.Type == Dir {
			continue // the directory exists outside
		}
		if c.Refused() || c.New == nil || c.New.Type != Dir {
			return false
		}
		take[parent] = true
	}
	return true
}

// keptDirs is the set of directories that contain entries that stay. Each is added only once,
// because a sandbox may remove a tree of any size.
type keptDirs map[string]bool

func (s keptDirs) add(name string) {
	for i := strings.LastIndexByte(name, '/'); i > 0 && !s[name[:i]]; i = strings.LastIndexByte(name[:i], '/') {
		s[name[:i]] = true
	}
}
