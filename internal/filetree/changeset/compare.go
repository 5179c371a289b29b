package changeset

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Options configure a comparison.
type Options struct {
	// Dir is the directory in the sandbox.
	Dir string
	// Lines requests the numbers of changed lines, and Text also the diffs.
	Lines, Text bool
	// Protected reports whether a policy protects a path, and Ignore whether the policy hides it
	// from the sandbox. Paths are relative. Nil matches nothing.
	Protected, Ignore func(path string) bool
	// Paths matches the same paths as Protected, starting from the state Start, for paths that go
	// through symbolic links. If it is nil, no links are followed.
	Paths PathMatcher
	// Under is the path of Dir in rules about files that tools execute; "" is the top.
	Under  string
	Start  string
	Bounds Bounds
}

// Compare returns the changes of a sandbox. It reads the names and times of all files, and the
// content only if these are not conclusive: a program can set a file's modification time, but not
// its change time.
func Compare(ctx context.Context, source Source, base Base, o Options) (*Set, error) {
	o.Bounds = o.Bounds.OrDefault()
	c := &comparison{ctx: ctx, source: source, hide: source.Redactor, base: base, o: o}
	if base.Outside != nil {
		dir, err := base.Outside.Open(".")
		if err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		defer dir.Close()
		c.dir = dir
	}
	set := &Set{TakenAt: time.Now()}
	if err := c.listTrees(); err != nil {
		return nil, err
	}
	if err := c.sums(); err != nil {
		return nil, err
	}
	found, err := c.decideAll()
	if err != nil {
		return nil, err
	}
	c.markConflicts(found)
	if err := c.texts(found); err != nil {
		return nil, err
	}
	c.flag(found)
	for _, f := range found {
		set.Changes = append(set.Changes, f.change)
		set.Added += f.change.Added
		set.Removed += f.change.Removed
	}
	set.Digest = Digest(set.Changes)
	return set, nil
}

// trio is one path in three states: at the start of the sandbox, outside now, and in the sandbox
// now.
type trio struct {
	start, host, now *Entry
	// brought is set if start is the result of an earlier Apply.
	brought bool
}

// comparison is the state of one call of Compare.
type comparison struct {
	ctx     context.Context
	source  Source
	hide    RedactorOf
	base    Base
	o       Options
	dir     *os.File // base.Outside
	paths   []string
	files   map[string]*trio
	opaque  map[string]bool
	aliases *aliases // of changed files; may be nil
}

// found is a change with data that only the comparison needs.
type found struct {
	change Change
	trio   *trio
	// scripts is set if the scripts that a package manager runs automatically differ.
	scripts bool
	// masked and wasMasked are set if the new and the old content contain a secret. equal is set if
	// no difference remains after redaction.
	masked, wasMasked, equal bool
}

// listTrees lists the trees. The sandbox is listed first, because it may show files of the host
// that change during the comparison.
func (c *comparison) listTrees() error {
	inside, err := c.list(TreeRequest{Dir: c.o.Dir})
	if err != nil {
		return err
	}
	var outside []Entry
	if c.dir != nil {
		if outside, err = Walk(c.ctx, c.base.Outside, c.o.Bounds, nil); err != nil {
			return err
		}
	}
	c.files, c.opaque = make(map[string]*trio, len(inside)), map[string]bool{}
	c.collect(c.base.Start, func(t *trio, e *Entry) { t.start = e })
	c.collect(outside, func(t *trio, e *Entry) { t.host = e })
	c.collect(inside, func(t *trio, e *Entry) { t.now = e })
	c.collect(c.base.Brought, func(t *trio, e *Entry) {
		if t.start, t.brought = e, true; e.Type == "" {
			t.start = nil
		}
	})
	for name, t := range c.files {
		if c.hidden(name) || t.host != nil && reserved(name) {
			continue // a file of an Apply that is in progress
		}
		if maybeChanged(t, c.dir != nil) {
			c.paths = append(c.paths, name)
		}
	}
	slices.Sort(c.paths)
	return nil
}

// collect calls put for each entry, with the trio of its path.
func (c *comparison) collect(entries []Entry, put func(*trio, *Entry)) {
	for i := range entries {
		e := &entries[i]
		t := c.files[e.Path]
		if t == nil {
			t = &trio{}
			c.files[e.Path] = t
		}
		put(t, e)
		if e.Opaque {
			c.opaque[e.Path] = true
		}
	}
}

// list requests and reads a tree of the sandbox.
func (c *comparison) list(req TreeRequest) ([]Entry, error) {
	r, err := c.source.Tree(c.ctx, req)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ReadTree(r, c.o.Bounds)
}

// hidden reports whether a path cannot be compared: the policy hides it, something is mounted
// there, or it may not be read.
func (c *comparison) hidden(name string) bool {
	if c.o.Ignore != nil && c.o.Ignore(name) {
		return true
	}
	if len(c.opaque) == 0 {
		return false
	}
	for i := len(name); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if c.opaque[name[:i]] {
			return true
		}
	}
	return false
}

// sums requests the checksums of files that may have changed. The sandbox's new description of
// these files replaces its earlier one, because it was made when the content was read.
func (c *comparison) sums() error {
	var names []string
	for _, name := range c.paths {
		if now := c.files[name].now; now != nil && now.Type == Regular && now.Size <= c.o.Bounds.FileBytes {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	entries, err := c.list(TreeRequest{Dir: c.o.Dir, Paths: asBytes(names), Sums: true, SumBytes: c.o.Bounds.FileBytes})
	if err != nil {
		return err
	}
	described := make(map[string]*Entry, len(entries))
	for i := range entries {
		described[entries[i].Path] = &entries[i]
	}
	for _, name := range names {
		c.files[name].now = described[name]
		if e := described[name]; e != nil && e.Opaque {
			c.opaque[name] = true
		}
		delete(described, name)
	}
	if len(described) > 0 {
		return malformed("it names files that were not requested")
	}
	return nil
}
