package objects

import (
	"bytes"
	"container/heap"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one look at a history.
const (
	maxCommits = 200_000
	maxTrees   = 500_000
	maxDepth   = 512
)

type commit struct {
	id      string
	tree    string
	parents []string
	time    int64
	known   bool // a known name reaches it
	seen    bool
	waiting bool // in the queue
}

// commit reads a commit, or what a tag names. A name of something else is nil.
func (r *Reader) commit(id string) (*commit, error) {
	for range 16 {
		kind, data, err := r.Read(id)
		if err != nil {
			return nil, err
		}
		switch kind {
		case "tag":
			object, _, _ := strings.Cut(string(data), "\n")
			if id, _ = strings.CutPrefix(object, "object "); id == "" {
				return nil, errMalformed
			}
			continue
		case "commit":
			return parseCommit(id, data)
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%w: tags of tags", errMalformed)
}

func parseCommit(id string, data []byte) (*commit, error) {
	c := &commit{id: id}
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "tree":
			c.tree = rest
		case "parent":
			c.parents = append(c.parents, rest)
		case "committer":
			if f := strings.Fields(rest); len(f) > 1 {
				c.time, _ = strconv.ParseInt(f[len(f)-2], 10, 64)
			}
		}
		if word == "" {
			break
		}
	}
	if c.tree == "" {
		return nil, fmt.Errorf("%w: %s has no tree", errMalformed, id)
	}
	return c, nil
}

// newest is a heap of commits.
type newest []*commit

func (h newest) Len() int           { return len(h) }
func (h newest) Less(i, j int) bool { return h[i].time > h[j].time }
func (h newest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *newest) Push(x any)        { *h = append(*h, x.(*commit)) }
func (h *newest) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Since finds the tree of a commit, and those of the known commits that it was made
// upon: the nearest that the known names reach. A name of no commit has no tree, and
// what was made upon nothing that is known has no bases. A parent that is missing is
// none, as in a shallow repository.
func (r *Reader) Since(tip string, known []string) (tree string, bases []string, err error) {
	h := history{r: r, all: map[string]*commit{}}
	for _, id := range known {
		if _, err := h.reach(id, true, false); err != nil {
			return "", nil, err
		}
	}
	first, err := h.reach(tip, false, true)
	if err != nil || first == nil {
		return "", nil, err
	}
	if err := h.follow(func() bool { return h.pending > 0 }); err != nil {
		return "", nil, err
	}
	if bases = h.bases(first); len(bases) == 0 {
		// Clocks that were wrong may have kept a known commit from being seen as one.
		if err := h.follow(func() bool { return true }); err != nil {
			return "", nil, err
		}
		bases = h.bases(first)
	}
	return first.tree, bases, nil
}

// history is a look at commits, the newest first.
type history struct {
	r       *Reader
	all     map[string]*commit
	queue   newest
	pending int // of what waits and is not known
}

// reach comes to a commit from a known one, or from one that is not. must says that
// it may not be missing.
func (h *history) reach(id string, known, must bool) (*commit, error) {
	c, read := h.all[id]
	if !read {
		if len(h.all) >= maxCommits {
			return nil, errors.New("the history is longer than what is looked into")
		}
		var err error
		if c, err = h.r.commit(id); err != nil && (must || !errors.Is(err, ErrMissing)) {
			return nil, err
		}
		h.all[id] = c
	}
	if c == nil || c.seen && (c.known || !known) {
		return c, nil
	}
	if c.waiting && !c.known {
		h.pending--
	}
	c.seen, c.known = true, known
	if !c.waiting {
		// Also one that was passed as new: its parents are known too.
		c.waiting = true
		heap.Push(&h.queue, c)
	}
	if !known {
		h.pending++
	}
	return c, nil
}

// follow goes on to parents while it is to go on.
func (h *history) follow(on func() bool) error {
	for len(h.queue) > 0 && on() {
		c := heap.Pop(&h.queue).(*commit)
		if c.waiting = false; !c.known {
			h.pending--
		}
		for _, id := range c.parents {
			if _, err := h.reach(id, c.known, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// bases are the trees of the known commits that are the nearest to one.
func (h *history) bases(first *commit) (bases []string) {
	if first.known {
		return []string{first.tree}
	}
	seen := map[string]bool{}
	for next := []*commit{first}; len(next) > 0; {
		c := next[0]
		next = next[1:]
		for _, id := range c.parents {
			p := h.all[id]
			if p == nil || seen[id] {
				continue
			}
			if seen[id] = true; p.known {
				bases = append(bases, p.tree)
			} else {
				next = append(next, p)
			}
		}
	}
	slices.Sort(bases)
	return slices.Compact(bases)
}

// file is an entry of a tree.
type file struct{ name, mode, id string }

const treeMode = "40000"

func (r *Reader) tree(id string, size int) ([]file, error) {
	if id == "" {
		return nil, nil
	}
	kind, data, err := r.Read(id)
	if err != nil {
		return nil, err
	}
	if kind != "tree" {
		return nil, fmt.Errorf("%w: %s is no tree", errMalformed, id)
	}
	var out []file
	for len(data) > 0 {
		head := bytes.IndexByte(data, 0)
		if head < 0 || head+1+size > len(data) {
			return nil, fmt.Errorf("%w: %s is cut", errMalformed, id)
		}
		mode, name, ok := strings.Cut(string(data[:head]), " ")
		if !ok || name == "" {
			return nil, errMalformed
		}
		out = append(out, file{name, mode, hex.EncodeToString(data[head+1 : head+1+size])})
		data = data[head+1+size:]
	}
	return out, nil
}

// Changed calls f with the path of each file that is not the same in two trees, and
// what it is in the second: its mode and name as an object, or "" where there is none.
// "" is a tree of nothing.
func (r *Reader) Changed(from, to string, f func(path, now string) error) error {
	left := maxTrees
	return r.changed(from, to, "", max(len(from), len(to))/2, &left, 0, f)
}

func (r *Reader) changed(from, to, above string, size int, left *int, depth int, f func(path, now string) error) error {
	if from == to {
		return nil
	}
	if *left--; *left < 0 || depth > maxDepth {
		return errors.New("the trees are larger than what is looked into")
	}
	old, err := r.tree(from, size)
	if err != nil {
		return err
	}
	now, err := r.tree(to, size)
	if err != nil {
		return err
	}
	was := make(map[string]file, len(old))
	for _, e := range old {
		was[e.name] = e
	}
	// A name that stands twice in a tree is judged twice.
	for _, e := range now {
		o, had := was[e.name]
		delete(was, e.name)
		if had && o == e {
			continue
		}
		if err := r.both(o, e, above+e.name, size, left, depth, f); err != nil {
			return err
		}
	}
	for _, o := range old {
		if _, gone := was[o.name]; gone {
			if err := r.both(o, file{}, above+o.name, size, left, depth, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// both compares what a name is in two trees.
func (r *Reader) both(o, e file, name string, size int, left *int, depth int, f func(path, now string) error) error {
	oldTree, newTree := "", ""
	if o.mode == treeMode {
		oldTree = o.id
	}
	if e.mode == treeMode {
		newTree = e.id
	}
	if o.id != "" && oldTree == "" || e.id != "" && newTree == "" {
		now := ""
		if e.id != "" && newTree == "" {
			now = e.mode + " " + e.id
		}
		if err := f(name, now); err != nil {
			return err
		}
	}
	return r.changed(oldTree, newTree, name+"/", size, left, depth+1, f)
}
