package objects

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of one walk through a history.
const (
	maxCommits = 200_000
	maxSteps   = 20_000_000 // edges from commits to their parents, in all walks together
)

// Commit is a commit of a history.
type Commit struct {
	ID   string
	Tree string

	parents []string
	time    int64
	known   bool // reachable from a known name
	seen    bool
	waiting bool // in the queue
}

// commit reads a commit, or the commit to which a tag refers. It returns nil for an object of
// another type.
func (r *Reader) commit(id string) (*Commit, error) {
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

// parseCommit parses the content of a commit.
func parseCommit(id string, data []byte) (*Commit, error) {
	c := &Commit{ID: id}
	for line := range strings.Lines(string(data)) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "tree":
			c.Tree = rest
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
	if c.Tree == "" {
		return nil, fmt.Errorf("%w: %s has no tree", errMalformed, id)
	}
	return c, nil
}

// newest is a heap of commits.
type newest []*Commit

func (h newest) Len() int           { return len(h) }
func (h newest) Less(i, j int) bool { return h[i].time > h[j].time }
func (h newest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *newest) Push(x any)        { *h = append(*h, x.(*Commit)) }
func (h *newest) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// History contains the commits that a repository's references reach, and the commits made on top of
// them. It caches what it has read.
type History struct {
	r       *Reader
	all     map[string]*Commit // nil for an object that is missing or not a commit
	queue   newest
	pending int  // number of queued commits that are not known
	whole   bool // the history was read to its end
	steps   int
}

// NewHistory starts with the commits of known names. It ignores missing ones.
func NewHistory(r *Reader, known []string) (*History, error) {
	h := &History{r: r, all: map[string]*Commit{}, steps: maxSteps}
	for _, id := range known {
		if _, err := h.reach(id, true, false); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Find returns the commit of a name, and reads all its ancestors. It returns nil for an object that
// is not a commit. A missing parent is ignored, as in a shallow repository.
func (h *History) Find(tip string) (*Commit, error) {
	first, err := h.reach(tip, false, true)
	if err != nil || first == nil {
		return nil, err
	}
	if err := h.follow(func() bool { return h.pending > 0 }); err != nil {
		return nil, err
	}
	if bases, err := h.Bases(first); err != nil || len(bases) > 0 {
		return first, err
	}
	return first, h.Complete()
}

// Whole reports whether the history was read to its end.
func (h *History) Whole() bool { return h.whole }

// Complete reads the history to its end, because with wrong clocks a known commit may not have been
// recognised.
func (h *History) Complete() error {
	if err := h.follow(func() bool { return true }); err != nil {
		return err
	}
	h.whole = true
	return nil
}

// reach adds a commit that another commit refers to. known is set if that commit is known. If must
// is set, a missing commit is an error.
func (h *History) reach(id string, known, must bool) (*Commit, error) {
	c, read := h.all[id]
	if !read || c == nil && must {
		if len(h.all) >= maxCommits {
			return nil, errors.New("the history is longer than the limit")
		}
		var err error
		if c, err = h.r.commit(id); err != nil && (must || !errors.Is(err, ErrMissing)) {
			return nil, err
		}
		if c != nil && c.ID != id {
			// This is a tag, and its commit may already have been read by its own name.
			return h.tagged(id, c, known)
		}
		h.all[id] = c
	}
	if c != nil {
		h.enqueue(c, known)
	}
	return c, nil
}

// tagged records the commit to which a tag refers.
func (h *History) tagged(id string, c *Commit, known bool) (*Commit, error) {
	if existing := h.all[c.ID]; existing != nil {
		c = existing
	}
	h.all[id], h.all[c.ID] = c, c
	h.enqueue(c, known)
	return c, nil
}

// enqueue adds a commit to the queue if necessary.
func (h *History) enqueue(c *Commit, known bool) {
	if c.seen && (c.known || !known) {
		return
	}
	if c.waiting && !c.known {
		h.pending--
	}
	c.seen, c.known, h.whole = true, known, false
	if !c.waiting {
		// This includes a commit that was considered new before: its parents are known too.
		c.waiting = true
		heap.Push(&h.queue, c)
	}
	if !known {
		h.pending++
	}
}

// follow visits parents as long as more returns true.
func (h *History) follow(more func() bool) error {
	for len(h.queue) > 0 && more() {
		c := heap.Pop(&h.queue).(*Commit)
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

// Bases returns the trees of the nearest known ancestors of a commit, on which it is based. A known
// commit is its own base. A commit of an unrelated history has none.
func (h *History) Bases(c *Commit) (bases []string, err error) {
	if c.known {
		return []string{c.Tree}, nil
	}
	err = h.walk(c, func(p *Commit) bool {
		if p.known {
			bases = append(bases, p.Tree)
		}
		return !p.known
	})
	slices.Sort(bases)
	return slices.Compact(bases), err
}

// New returns the commits that a commit reaches and that are not known, including itself.
func (h *History) New(c *Commit) (made []*Commit, err error) {
	if c.known {
		return nil, nil
	}
	made = append(made, c)
	err = h.walk(c, func(p *Commit) bool {
		if !p.known {
			made = append(made, p)
		}
		return !p.known
	})
	return made, err
}

// Parents returns the trees of a commit's existing parents.
func (h *History) Parents(c *Commit) (trees []string) {
	for _, id := range c.parents {
		if p := h.all[id]; p != nil {
			trees = append(trees, p.Tree)
		}
	}
	return trees
}

// walk calls f with a commit and its ancestors, nearest first. It continues with the parents of
// those for which f returns true.
func (h *History) walk(c *Commit, f func(*Commit) bool) error {
	seen := map[string]bool{c.ID: true}
	for next := []*Commit{c}; len(next) > 0; {
		c := next[0]
		next = next[1:]
		for _, id := range c.parents {
			if h.steps--; h.steps < 0 {
				return errors.New("the history has more paths than the limit")
			}
			if p := h.all[id]; p != nil && !seen[id] {
				if seen[id] = true; f(p) {
					next = append(next, p)
				}
			}
		}
	}
	return nil
}
