package changeset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maybeChanged reports, by names and times, whether a file may have changed.
func maybeChanged(t *trio, outside bool) bool {
	switch {
	case t.now == nil:
		return t.start != nil && (t.host != nil || !outside)
	case t.host != nil && same(t.now, t.host), t.start != nil && same(t.now, t.start):
		return false // the sandbox has the original file, or the host's current one
	}
	return true
}

// same reports whether a file in the sandbox is certainly the host's file.
func same(x, y *Entry) bool {
	switch {
	case x.Type != y.Type:
		return false
	case x.Type == Dir:
		return sameMode(x, y)
	case x.Type == Link:
		return x.Target == y.Target
	case x.Type == Other:
		return true
	}
	return x.Size == y.Size && x.Mode == y.Mode && x.MTime.Equal(y.MTime) && x.CTime.Equal(y.CTime)
}

// sameMode reports whether two files have the same exported mode bits.
func sameMode(x, y *Entry) bool {
	bits := uint32(exportedModeBits)
	switch x.Type {
	case Link:
		return true
	case Regular:
		bits |= 0o6000 // the owner is about to change
	case Dir, Other:
	}
	return x.Mode&bits == y.Mode&bits
}

// decideAll decides about each file that may have changed.
func (c *comparison) decideAll() ([]*found, error) {
	var all []*found
	for _, name := range c.paths {
		t := c.files[name]
		if c.hidden(name) || !maybeChanged(t, c.dir != nil) {
			continue
		}
		f, err := c.decide(name, t)
		if err != nil {
			return nil, err
		}
		if f != nil {
			all = append(all, f)
		}
	}
	return all, nil
}

// decide compares the three states of a file. It returns nil if the sandbox has not changed the
// file.
func (c *comparison) decide(name string, t *trio) (*found, error) {
	f := &found{change: Change{Path: name, Old: t.start, New: t.now, Outside: t.host}, trio: t}
	if t.now != nil {
		equal, err := c.unchanged(t)
		if err != nil || equal && sameMode(t.start, t.now) {
			return nil, err
		}
		f.change.SameContent = equal
		if t.host != nil {
			equal, err := c.equalOutside(t)
			if err != nil || equal {
				return nil, err
			}
		}
	}
	switch {
	case t.now == nil:
		f.change.Op = Removed
	case t.start == nil:
		f.change.Op = Created
	default:
		f.change.Op = Changed
	}
	if c.dir == nil {
		return f, nil
	}
	switch {
	case t.start == nil && t.host != nil:
		f.change.Conflict = CreatedOutside
	case t.start != nil && t.host == nil:
		f.change.Conflict = RemovedOutside
	case t.start != nil:
		changed, err := c.changedOutside(t)
		if err != nil {
			return nil, err
		}
		if changed {
			f.change.Conflict = ChangedOutside
		}
	}
	return f, nil
}

// unchanged reports whether a file has its original content although its times differ.
func (c *comparison) unchanged(t *trio) (bool, error) {
	if t.start == nil || t.start.Type != t.now.Type {
		return false, nil
	}
	if t.now.Type != Regular {
		return t.now.Target == t.start.Target, nil
	}
	if t.start.Size != t.now.Size || t.now.Sum == "" {
		return false, nil
	}
	sum := t.start.Sum
	if sum == "" {
		r, err := c.openOriginal(t)
		if errors.Is(err, errUnknown) || errors.Is(err, errMoved) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", t.start.Path, err)
		}
		sum, err = sumAndClose(c.ctx, r)
		if err != nil {
			return false, fmt.Errorf("read %s: %w", t.start.Path, err)
		}
	}
	return sum == t.now.Sum, nil
}

// equalOutside reports whether the sandbox and the host made the same change.
func (c *comparison) equalOutside(t *trio) (bool, error) {
	switch {
	case t.host.Type != t.now.Type:
		return false, nil
	case t.now.Type == Dir:
		// A directory that both sides created keeps the host's mode.
		return t.start == nil || sameMode(t.host, t.now), nil
	case !sameMode(t.host, t.now):
		return false, nil
	case t.now.Type != Regular:
		return t.host.Target == t.now.Target, nil
	case t.host.Size != t.now.Size || t.now.Sum == "":
		return false, nil
	}
	f, err := hostFiles{c.dir}.open(t.host)
	if errors.Is(err, errMoved) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum, err := sumAndClose(c.ctx, f)
	return sum == t.now.Sum, err
}

// changedOutside reports whether a host file differs from the original one.
func (c *comparison) changedOutside(t *trio) (bool, error) {
	if t.host.Type == Dir && t.start.Type == Dir {
		return false, nil // changes in the directory are reported separately
	}
	if c.base.Content == nil || t.brought {
		return !sameOutside(t.start, t.host), nil
	}
	// The times of the copy differ, so the contents are compared.
	if t.start.Type != t.host.Type || t.start.Mode&exportedModeBits != t.host.Mode&exportedModeBits {
		return true, nil
	}
	if t.start.Type != Regular {
		return t.start.Target != t.host.Target, nil
	}
	if t.start.Size != t.host.Size {
		return true, nil
	}
	copied, err := c.openOriginal(t)
	if err != nil {
		return false, fmt.Errorf("read the copy of %s: %w", t.start.Path, err)
	}
	before, err := sumAndClose(c.ctx, copied)
	if err != nil {
		return false, err
	}
	f, err := hostFiles{c.dir}.open(t.host)
	if errors.Is(err, errMoved) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	now, err := sumAndClose(c.ctx, f)
	return before != now, err
}

// sumAndClose returns the checksum of a file and closes it.
func sumAndClose(ctx context.Context, r io.ReadCloser) (string, error) {
	defer r.Close()
	return sumOf(ctx, r)
}

// markConflicts finds conflicts between a path and paths above or below it.
func (c *comparison) markConflicts(all []*found) {
	changed := make(map[string]*found, len(all))
	for _, f := range all {
		changed[f.change.Path] = f
	}
	for _, f := range all {
		if f.change.Conflict != "" || c.dir == nil {
			continue
		}
		// The parent is no longer a directory outside.
		if i := strings.LastIndexByte(f.change.Path, '/'); i > 0 && f.change.New != nil {
			parent := c.files[f.change.Path[:i]]
			if entry := changed[f.change.Path[:i]]; (parent == nil || parent.host == nil || parent.host.Type != Dir) &&
				(entry == nil || entry.change.New == nil || entry.change.New.Type != Dir) {
				f.change.Conflict = ChangedOutside
			}
		}
	}
	for name, t := range c.files {
		if t.host == nil || changed[name] != nil && changed[name].change.Op == Removed {
			continue
		}
		// The sandbox removed a directory, and outside it contains a file that the sandbox never
		// had.
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			f := changed[name[:i]]
			if f != nil && f.change.Old != nil && f.change.Old.Type == Dir && (f.change.New == nil || f.change.New.Type != Dir) && f.change.Conflict == "" {
				f.change.Conflict = ChangedOutside
			}
		}
	}
}
