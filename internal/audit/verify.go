package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

// Verify reads the complete log and returns the first difference from what was written. against are
// earlier signed tree heads. They detect an attacker who has the key and has rewritten the log.
// Verify needs no index. It returns an error if the log cannot be read.
func (l *Log) Verify(ctx context.Context, against ...string) (Verification, error) {
	if err := l.queue.flush(ctx); err != nil && ctx.Err() != nil {
		return Verification{}, err
	}
	for {
		first, _, err := l.extent()
		if err != nil && !isDamage(err) {
			return Verification{}, err
		}
		v, err := l.verify(ctx, against)
		if isDamage(err) {
			err = found(v.Seq, Unreadable, "%v", err)
		}
		if now, _, e := l.extent(); e == nil && now != first {
			continue // old entries were dropped in between
		}
		f, ok := errors.AsType[*finding](err)
		if ok {
			v.Seq, v.Flaw, v.Text, err = f.seq, f.flaw, f.text, nil
		}
		v.OK = err == nil && !ok
		return v, err
	}
}

// reading is one pass over the log.
type reading struct {
	log     *Log
	size    int64     // number of entries in the stored tree
	torn    bool      // the stored tree is shorter than the lines, and cannot be completed
	tree    *hashTree // stored tree
	grown   frontier  // tree of the lines read so far
	chain   chain
	marks   marks
	dropped []mark // marks whose size is within dropped entries
}

// verify makes one pass over the log. Its error is a finding, or the reason why the pass failed.
func (l *Log) verify(ctx context.Context, against []string) (v Verification, err error) {
	// An entry that a crashed writer left incomplete is repaired first, and is not a finding.
	damaged := l.locked(ctx, func() error { return nil })
	if damaged != nil && !isDamage(damaged) {
		return v, damaged
	}
	notes, err := l.storedNotes()
	if err != nil {
		return v, err
	}
	first, size, err := l.extent()
	if err != nil {
		return v, err
	}
	v.First = first
	all, unsigned := marksOf(l.verifier, append(notes, against...))
	f, err := openAt(l.path(hashesName), os.O_RDONLY)
	if err != nil {
		return v, err
	}
	defer f.Close()
	r := &reading{log: l, size: size, torn: damaged != nil, tree: treeOf(f, size)}
	for _, m := range all {
		if m.size < first {
			r.dropped = append(r.dropped, m)
		} else {
			r.marks.left = append(r.marks.left, m)
		}
	}
	if err := r.begin(ctx, first, all); err != nil {
		return v, err
	}
	err = r.lines(ctx, first)
	v.Entries = r.grown.size - first
	if err == nil {
		err = r.end()
	}
	v.Checkpoints, v.Uncovered = r.marks.count, r.grown.size-r.marks.agreed
	if err == nil {
		err = unsigned
	}
	if err == nil && damaged != nil {
		err = found(r.grown.size, Unreadable, "%v", damaged)
	}
	if err == nil && v.Uncovered > 2*checkpointEvery {
		err = found(r.marks.agreed, Unsigned, "there is no signed tree head for entries %d to %d, but one is expected for each %d",
			r.marks.agreed, r.grown.size-1, checkpointEvery)
	}
	return v, err
}

// begin starts the tree with the hashes of dropped entries. A signed entry must state that they
// were dropped; otherwise an attacker could remove the oldest segments.
func (r *reading) begin(ctx context.Context, first int64, all []mark) error {
	if first == 0 || first > r.size {
		return nil
	}
	var signed int64
	if len(all) > 0 {
		signed = all[len(all)-1].size
	}
	allowed := false
	marker := []byte(`"kind":"` + string(Truncated) + `"`)
	err := r.each(ctx, first, func(_ int64, line []byte, _ bool) error {
		if !bytes.Contains(line, marker) {
			return nil
		}
		e, err := decode(line)
		var t truncation
		if err == nil && e.Kind == Truncated && e.Seq < signed && json.Unmarshal(e.Data, &t) == nil && t.First >= first {
			allowed = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !allowed {
		return found(0, Missing, "entry 0 is missing: the first is %d, and no signed entry states that earlier ones were dropped", first)
	}
	levels, indexes := subtrees(0, first)
	hashes, err := r.tree.ReadHashes(indexes)
	if err != nil {
		return found(0, Unreadable, "%v", err)
	}
	for i, h := range hashes {
		if err := r.grown.push(levels[i], h); err != nil {
			return err
		}
	}
	return nil
}

// lines reads the stored entries.
func (r *reading) lines(ctx context.Context, first int64) error {
	if err := r.marks.at(&r.grown); err != nil {
		return err
	}
	err := r.each(ctx, first, func(seq int64, line []byte, complete bool) error {
		if seq >= r.size && !r.torn {
			return errFound // the entry was written after the pass began
		}
		return r.entry(ctx, first, seq, line, complete)
	})
	if errors.Is(err, errFound) {
		return nil
	}
	return err
}

// entry checks one line and adds it to the tree.
func (r *reading) entry(ctx context.Context, first, seq int64, line []byte, complete bool) error {
	leaf := tlog.RecordHash(line)
	e, err := decode(line)
	fits, misnumbered := r.isLeaf(seq, leaf), err == nil && e.Seq != seq
	switch {
	case misnumbered && (fits || r.isLeaf(e.Seq, leaf)):
		return misplaced(seq, e.Seq, r.has(ctx, first, seq))
	case err != nil || misnumbered || !fits || !complete:
		// If the previous hash differs too, this line was changed.
		return found(seq, Changed, "entry %d was changed", seq)
	}
	if err := r.chain.link(e.Prev); err != nil {
		return err
	}
	if seq == 0 && e.Prev != "" {
		return found(0, Changed, "entry 0 was changed")
	}
	if e.Kind == Truncated {
		if err := r.truncated(e); err != nil {
			return err
		}
	}
	r.chain.line(seq, line)
	if err := r.grown.push(0, leaf); err != nil {
		return err
	}
	return r.marks.at(&r.grown)
}

// truncated checks the size and root hash in an entry about dropped entries.
func (r *reading) truncated(e Entry) error {
	var t truncation
	if json.Unmarshal(e.Data, &t) != nil || t.Size != e.Seq || t.Root != r.grown.root().String() {
		return found(e.Seq, Forked, "entry %d, about dropped entries, has another size or root hash of the audit log", e.Seq)
	}
	return nil
}

// isLeaf reports whether leaf is the hash of entry seq in the stored tree.
func (r *reading) isLeaf(seq int64, leaf tlog.Hash) bool {
	if seq >= r.size {
		return r.torn // unknown
	}
	h, err := r.tree.ReadHashes([]int64{tlog.StoredHashIndex(0, seq)})
	return err == nil && h[0] == leaf
}

// has reports whether an entry is present.
func (r *reading) has(ctx context.Context, first, seq int64) bool {
	err := r.each(ctx, first, func(_ int64, line []byte, _ bool) error {
		if e, err := decode(line); err == nil && e.Seq == seq {
			return errFound
		}
		return nil
	})
	return errors.Is(err, errFound)
}

// each calls yield for each line of the files, with its expected number and with whether
// it is complete. It returns the error of yield.
func (r *reading) each(ctx context.Context, first int64, yield func(seq int64, line []byte, complete bool) error) error {
	segments, err := listSegments(r.log.dir)
	if err != nil {
		return found(first, Unreadable, "%v", err)
	}
	seq := first
	for _, s := range segments {
		if err := r.eachIn(ctx, s, &seq, yield); err != nil {
			return err
		}
	}
	return nil
}

// eachIn is each for one segment. It advances *seq.
func (r *reading) eachIn(ctx context.Context, segment int64, seq *int64, yield func(int64, []byte, bool) error) error {
	f, err := openAt(r.log.path(segmentName(segment)), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	for in := newLines(f, 0); ; *seq++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			if len(in.left) == 0 {
				return nil
			}
			line = in.left
		} else if isDamage(err) {
			return found(*seq, Changed, "entry %d was changed: %v", *seq, err)
		} else if err != nil {
			return found(*seq, Unreadable, "entry %d cannot be read: %v", *seq, err)
		}
		if e := yield(*seq, line, err == nil); e != nil {
			return e
		}
		if err != nil {
			*seq++
			return nil
		}
	}
}
