package changeset

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Options say how to compare.
type Options struct {
	// Dir is the directory inside.
	Dir string
	// Lines counts lines, and Text keeps them too.
	Lines, Text bool
	// Protected tells which paths a policy protects, and Ignore which it keeps
	// out of the sandbox. Paths are relative. Nil is none.
	Protected, Ignore func(path string) bool
	// Paths matches what Protected matches from the state Start on, for paths that
	// lead over symbolic links. Nil follows none.
	Paths PathMatcher
	// Under is the directory as which Dir counts for what tools run by themselves;
	// "" is the top.
	Under  string
	Start  string
	Bounds Bounds
}

// Compare tells what a sandbox has changed. It reads names and times of
// everything, and the content only where these do not settle it: a program
// inside can set the time of a change, and cannot set when that was done.
func Compare(ctx context.Context, box Box, base Base, o Options) (*Set, error) {
	o.Bounds = o.Bounds.OrDefault()
	c := &comparison{ctx: ctx, box: box, hide: box.Hide, base: base, o: o}
	if base.Outside != nil {
		dir, err := base.Outside.Open(".")
		if err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		defer dir.Close()
		c.dir = dir
	}
	set := &Set{TakenAt: time.Now()}
	if err := c.look(); err != nil {
		return nil, err
	}
	if err := c.sums(); err != nil {
		return nil, err
	}
	found, err := c.settle()
	if err != nil {
		return nil, err
	}
	c.below(found)
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

// trio is one path: as the sandbox got it, as it is outside, as it is inside.
type trio struct {
	start, host, now *Entry
	// brought says that start is what an earlier Apply left outside.
	brought bool
}

type comparison struct {
	ctx     context.Context
	box     Box
	hide    Hide
	base    Base
	o       Options
	dir     *os.File // base.Outside
	paths   []string
	files   map[string]*trio
	opaque  map[string]bool
	aliases *aliases // of what is changed; nil is none
}

// found is a change with what it was made from.
type found struct {
	change Change
	trio   *trio
	// scripts says that what a package runs by itself is another.
	scripts bool
	// masked and wasMasked say that the file has, and had, what must not be seen;
	// equal that there is no difference to be seen.
	masked, wasMasked, equal bool
}

// look lists the trees. The sandbox comes first: it may show files of the host that
// change during the comparison.
func (c *comparison) look() error {
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
			continue // an Apply is under way
		}
		if touched(t, c.dir != nil) {
			c.paths = append(c.paths, name)
		}
	}
	slices.Sort(c.paths)
	return nil
}

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

func (c *comparison) list(req TreeRequest) ([]Entry, error) {
	r, err := c.box.Tree(c.ctx, req)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ReadTree(r, c.o.Bounds)
}

// hidden reports whether a path cannot be compared: the policy keeps it out of the
// sandbox, something is mounted there, or it may not be read.
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

// sums asks for the content of what is touched. What the sandbox says now stands
// for what it said before: each file by itself is described as it was read.
func (c *comparison) sums() error {
	var ask []string
	for _, name := range c.paths {
		if now := c.files[name].now; now != nil && now.Type == Regular && now.Size <= c.o.Bounds.FileBytes {
			ask = append(ask, name)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	entries, err := c.list(TreeRequest{Dir: c.o.Dir, Paths: asBytes(ask), Sums: true, SumBytes: c.o.Bounds.FileBytes})
	if err != nil {
		return err
	}
	told := make(map[string]*Entry, len(entries))
	for i := range entries {
		told[entries[i].Path] = &entries[i]
	}
	for _, name := range ask {
		c.files[name].now = told[name]
		if e := told[name]; e != nil && e.Opaque {
			c.opaque[name] = true
		}
		delete(told, name)
	}
	if len(told) > 0 {
		return malformed("it names files that were not requested")
	}
	return nil
}
