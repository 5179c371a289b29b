package objects

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one look at a history.
const (
	maxCommits = 200_000
	maxSteps   = 20_000_000 // from commits to their parents, for all that is asked
)

// Commit is a commit of a history.
type Commit struct {
	ID   string
	Tree string

	parents []string
	time    int64
	known   bool // a known name reaches it
	seen    bool
	waiting bool // in the queue
}

// commit reads a commit, or what a tag names. A name of something else is nil.
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

// History is what the references of a repository reach, and what was made upon that. It
// remembers what it has read.
type History struct {
	r       *Reader
	all     map[string]*Commit // nil is what is missing or no commit
	queue   newest
	pending int // of what waits and is not known
	whole   bool
	steps   int
}

// NewHistory begins with the commits that known names. A name that is missing is none.
func NewHistory(r *Reader, known []string) (*History, error) {
	h := &History{r: r, all: map[string]*Commit{}, steps: maxSteps}
	for _, id := range known {
		if _, err := h.reach(id, true, false); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Find finds the commit of a name and all that it was made upon. What is no commit is
// nil. A parent that is missing is none, as in a shallow repository.
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

// Complete reads the history to its end: clocks that were wrong may have kept a known
// commit from being seen as one.
func (h *History) Complete() error {
	if err := h.follow(func() bool { return true }); err != nil {
		return err
	}
	h.whole = true
	return nil
}

// reach comes to a commit from a known one, or from one that is not. must says that
// it may not be missing.
func (h *History) reach(id string, known, must bool) (*Commit, error) {
	c, read := h.all[id]
	if !read || c == nil && must {
		if len(h.all) >= maxCommits {
			return nil, errors.New("the history is longer than what is looked into")
		}
		var err error
		if c, err = h.r.commit(id); err != nil && (must || !errors.Is(err, ErrMissing)) {
			return nil, err
		}
		if c != nil && c.ID != id {
			// A tag: the commit may have been read by its own name.
			return h.tagged(id, c, known)
		}
		h.all[id] = c
	}
	if c != nil {
		h.see(c, known)
	}
	return c, nil
}

// tagged remembers the commit that a tag names.
func (h *History) tagged(id string, c *Commit, known bool) (*Commit, error) {
	if is := h.all[c.ID]; is != nil {
		c = is
	}
	h.all[id], h.all[c.ID] = c, c
	h.see(c, known)
	return c, nil
}

func (h *History) see(c *Commit, known bool) {
	if c.seen && (c.known || !known) {
		return
	}
	if c.waiting && !c.known {
		h.pending--
	}
	c.seen, c.known, h.whole = true, known, false
	if !c.waiting {
		// Also one that was passed as new: its parents are known too.
		c.waiting = true
		heap.Push(&h.queue, c)
	}
	if !known {
		h.pending++
	}
}

// follow visits parents for as long as on returns true.
func (h *History) follow(on func() bool) error {
	for len(h.queue) > 0 && on() {
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

// Bases are the trees of the known commits that are the nearest to one: what it was
// made upon. A commit that is known is its own; one of a history of its own has none.
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

// New are the commits that one reaches and that are not known, itself too.
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

// Parents are the trees of a commit's parents that are there.
func (h *History) Parents(c *Commit) (trees []string) {
	for _, id := range c.parents {
		if p := h.all[id]; p != nil {
			trees = append(trees, p.Tree)
		}
	}
	return trees
}

// walk calls f with the ancestors of a commit, the nearest first. It continues with the
// parents of those for which f returns true.
func (h *History) walk(c *Commit, f func(*Commit) bool) error {
	seen := map[string]bool{c.ID: true}
	for next := []*Commit{c}; len(next) > 0; {
		c := next[0]
		next = next[1:]
		for _, id := range c.parents {
			if h.steps--; h.steps < 0 {
				return errors.New("the history has more ways than are looked into")
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
