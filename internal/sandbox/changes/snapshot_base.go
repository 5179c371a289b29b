package changes

import (
	"context"
	"errors"
	"path"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// maxTextBytes is the size of the largest file of a snapshot whose content is fetched. For larger
// files no text is shown.
const maxTextBytes = 16 << 20

// fetchBase makes a snapshot the earlier state for a comparison with o's files. It fetches the list
// of the snapshot's files with checksums of those that may differ, and their content into a private
// directory.
func (s *Service) fetchBase(ctx context.Context, o *comparison, old changeset.Source) error {
	before, err := treeOf(ctx, old, changeset.TreeRequest{Dir: o.dir})
	if err != nil {
		return err
	}
	now, err := treeOf(ctx, o.source, changeset.TreeRequest{Dir: o.dir})
	if err != nil {
		return err
	}
	o.base.Start = before
	sums, err := treeOf(ctx, old, changeset.TreeRequest{
		Dir: o.dir, Paths: differing(before, now), Sums: true, SumBytes: changeset.DefaultBounds.FileBytes,
	})
	if err != nil {
		return err
	}
	var texts []changeset.Change
	withSums := make(map[string]changeset.Entry, len(sums))
	for i, e := range sums {
		withSums[e.Path] = e
		if e.Type == changeset.Regular && e.Sum != "" && e.Size <= maxTextBytes {
			texts = append(texts, changeset.Change{Path: e.Path, Op: changeset.Created, New: &sums[i]})
		}
	}
	for i, e := range o.base.Start {
		if t, ok := withSums[e.Path]; ok {
			o.base.Start[i] = t
		}
	}
	return s.stageBase(ctx, o, old, texts)
}

func treeOf(ctx context.Context, source changeset.Source, req changeset.TreeRequest) ([]changeset.Entry, error) {
	r, err := source.Tree(ctx, req)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return changeset.ReadTree(r, changeset.Bounds{})
}

// differing returns the regular files of one tree that may be missing or different in another tree.
func differing(before, now []changeset.Entry) [][]byte {
	current := make(map[string]changeset.Entry, len(now))
	for _, e := range now {
		current[e.Path] = e
	}
	out := [][]byte{}
	for _, e := range before {
		n, ok := current[e.Path]
		same := ok && n.Type == e.Type && n.Size == e.Size && n.Mode == e.Mode && n.MTime.Equal(e.MTime) && n.CTime.Equal(e.CTime)
		if e.Type == changeset.Regular && !same {
			out = append(out, []byte(e.Path))
		}
	}
	return out
}

// stageBase fetches files under their own names.
func (s *Service) stageBase(ctx context.Context, o *comparison, old changeset.Source, list []changeset.Change) error {
	if s.retained == nil {
		return fault.New(fault.Unsupported, "changes_unavailable", "this server cannot compare snapshots")
	}
	draft, err := s.retained.Begin(o.record.ID)
	if err != nil {
		return err
	}
	o.undo = append(o.undo, draft.Abort)
	if err := errors.Join(draft.Files.Mkdir("staged", 0o700), draft.Files.Mkdir("tree", 0o700)); err != nil {
		return err
	}
	staged, err := draft.Files.OpenRoot("staged")
	if err != nil {
		return err
	}
	defer staged.Close()
	if _, err := changeset.Stage(ctx, old, o.dir, list, staged, changeset.Bounds{FileBytes: maxTextBytes}); err != nil {
		return err
	}
	for i, c := range list {
		name := path.Join("tree", c.Path)
		if err := draft.Files.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		if err := draft.Files.Rename(path.Join("staged", strconv.Itoa(i)), name); err != nil {
			return err
		}
	}
	tree, err := draft.Files.OpenRoot("tree")
	if err != nil {
		return err
	}
	o.undo = append(o.undo, tree.Close)
	o.base.Content = tree
	return nil
}
