package audit

import "golang.org/x/mod/sumdb/tlog"

// end compares the end of the lines with the tree and the signed tree heads.
func (r *reading) end() error {
	if err := r.chain.end(); err != nil {
		return err
	}
	n := r.grown.size
	if n < r.size {
		return found(n, Cut, "entries from %d on are cut off: the tree has %d", n, r.size)
	}
	if left := r.marks.left; len(left) > 0 {
		return found(n, Cut, "entries from %d on are cut off: a signed tree head covers %d", n, left[len(left)-1].size)
	}
	root := r.grown.root()
	for _, m := range r.dropped {
		if m.size == 0 {
			continue
		}
		proof, err := tlog.ProveTree(n, m.size, r.tree)
		if err == nil {
			err = tlog.CheckTree(proof, n, root, m.size, m.root)
		}
		if err != nil {
			return found(0, Forked, "the %d entries of a signed tree head, which have been dropped, are not the beginning of this audit log", m.size)
		}
		r.marks.count++
	}
	return nil
}
