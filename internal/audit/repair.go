package audit

import (
	"errors"
	"io"

	"golang.org/x/mod/sumdb/tlog"
)

// dropZeroHashes removes hashes that a power failure left as zero bytes. completeTree computes them
// again from the lines, which were synced before. Other hashes are never computed again, because
// Verify must detect changes.
func (l *Log) dropZeroHashes() error {
	last, err := l.lastCheckpoint()
	if err != nil {
		return err
	}
	info, err := l.head.hashes.Stat()
	if err != nil {
		return err
	}
	from := tlog.StoredHashCount(last.Size) * tlog.HashSize
	if info.Size() <= from {
		return nil
	}
	tail := make([]byte, min(info.Size()-from, 1<<20))
	n, err := l.head.hashes.ReadAt(tail, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for at := 0; at+tlog.HashSize <= n; at += tlog.HashSize {
		if tlog.Hash(tail[at:at+tlog.HashSize]) == (tlog.Hash{}) {
			l.log.Warn("hashes of the audit log are computed again", "from", entriesIn(from+int64(at)))
			return l.head.hashes.Truncate(from + int64(at))
		}
	}
	return nil
}

// completeTree adds the missing hashes of lines whose writer was killed before it wrote the hashes.
func (l *Log) completeTree() error {
	h := &l.head
	info, err := h.hashes.Stat()
	if err != nil {
		return err
	}
	n := entriesIn(info.Size())
	wantBytes := tlog.StoredHashCount(h.size) * tlog.HashSize
	if n >= h.size {
		if n == h.size && info.Size() > wantBytes {
			return h.hashes.Truncate(wantBytes)
		}
		return nil
	}
	tree := treeOf(h.hashes, n)
	err = l.walk(spot{}, n, h.size, func(s spot, line []byte) error {
		return tree.add(s.seq, tlog.RecordHash(line))
	})
	if err != nil {
		return err
	}
	l.opts.step("complete")
	_, err = h.hashes.WriteAt(tree.bytes(), tree.base*tlog.HashSize)
	return err
}

// checkTreeHead compares the files with the newest signed tree head. A log that was truncated or
// replaced while no process had it open accepts no entries. Otherwise the next signed tree head
// would sign the forgery.
func (l *Log) checkTreeHead() error {
	last, err := l.lastCheckpoint()
	if err != nil || last.Note == "" {
		return err
	}
	h := &l.head
	if last.Size > h.size {
		return damageError("a signed tree head covers %d entries, but there are %d", last.Size, h.size)
	}
	root, err := tlog.TreeHash(last.Size, treeOf(h.hashes, h.size))
	if err != nil {
		return err
	}
	if root.String() != last.Root {
		return damageError("the first %d entries are not those that a signed tree head covers", last.Size)
	}
	return nil
}
