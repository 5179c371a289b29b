package audit

import (
	"io"
	"math/bits"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

const hashesName = "hashes"

// entriesIn returns the number of entries whose hashes fit in a number of bytes. Hashes are written
// after their lines are durable, so it is also the number of entries in the log.
func entriesIn(bytes int64) int64 {
	hashes := bytes / tlog.HashSize
	if hashes <= 0 {
		return 0
	}
	// The last hash in the file belongs to some entry. Further hashes of that entry may be missing.
	level, n := tlog.SplitStoredHashIndex(hashes - 1)
	entry := (n+1)<<uint(level) - 1
	if tlog.StoredHashCount(entry+1) == hashes {
		return entry + 1
	}
	return entry
}

// hashTree is the Merkle tree of the log. It reads hashes from the file, and has the hashes of new
// entries until they are written.
type hashTree struct {
	file  io.ReaderAt
	base  int64 // number of hashes in the file
	added []tlog.Hash
}

// ReadHashes implements tlog.HashReader.
func (s *hashTree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		if at >= s.base {
			if at-s.base >= int64(len(s.added)) {
				return nil, damageError("the tree lacks hash %d", at)
			}
			out[i] = s.added[at-s.base]
			continue
		}
		if _, err := s.file.ReadAt(out[i][:], at*tlog.HashSize); err != nil {
			return nil, damageError("hash %d of the tree cannot be read: %v", at, err)
		}
	}
	return out, nil
}

// add appends the hashes of an entry.
func (s *hashTree) add(seq int64, leaf tlog.Hash) error {
	hashes, err := tlog.StoredHashesForRecordHash(seq, leaf, s)
	if err != nil {
		return err
	}
	s.added = append(s.added, hashes...)
	return nil
}

// bytes returns the added hashes as they are written to the file.
func (s *hashTree) bytes() []byte {
	out := make([]byte, 0, len(s.added)*tlog.HashSize)
	for _, h := range s.added {
		out = append(out, h[:]...)
	}
	return out
}

// treeOf returns the tree of n entries whose hashes are in a file.
func treeOf(file *os.File, n int64) *hashTree {
	return &hashTree{file: file, base: tlog.StoredHashCount(n)}
}

// frontier is a tree that only grows: the roots of its complete subtrees, the largest first, one
// for each bit of its size.
type frontier struct {
	size  int64
	nodes []tlog.Hash
}

// push adds a complete subtree of 2^level entries. A leaf has level 0. It fails if the tree's size
// does not allow such a subtree at its end.
func (f *frontier) push(level int, h tlog.Hash) error {
	if level < 0 || level > 62 || f.size&(1<<level-1) != 0 || f.size > 1<<62-1<<level {
		return damageError("a subtree of level %d cannot follow %d entries", level, f.size)
	}
	for size := f.size >> level; size&1 == 1; size >>= 1 {
		last := len(f.nodes) - 1
		h = tlog.NodeHash(f.nodes[last], h)
		f.nodes = f.nodes[:last]
	}
	f.nodes = append(f.nodes, h)
	f.size += 1 << level
	return nil
}

// root returns the hash of the whole tree.
func (f *frontier) root() tlog.Hash {
	if len(f.nodes) == 0 {
		empty, _ := tlog.TreeHash(0, nil) // an empty tree needs no reader
		return empty
	}
	last := len(f.nodes) - 1
	h := f.nodes[last]
	for i := last - 1; i >= 0; i-- {
		h = tlog.NodeHash(f.nodes[i], h)
	}
	return h
}

// subtrees returns the complete subtrees that the entries from..to form.
func subtrees(from, to int64) (levels []int, indexes []int64) {
	for from < to {
		level := bits.Len64(uint64(to-from)) - 1
		if from != 0 {
			level = min(level, bits.TrailingZeros64(uint64(from)))
		}
		levels = append(levels, level)
		indexes = append(indexes, tlog.StoredHashIndex(level, from>>level))
		from += 1 << level
	}
	return levels, indexes
}
