package redact

// automaton is an Aho–Corasick automaton. The root and the nodes directly below it, which ordinary
// text reaches for nearly every byte, have full rows. Other nodes have lists with a failure link,
// because full rows would take megabytes.
type automaton struct {
	rows  []uint32 // 256 per full node
	full  uint32   // nodes below this have a row
	nodes []node
	// skip means that blanks and line breaks do not change the node, for wrapped forms.
	skip bool
	// longest is the length of the longest pattern.
	longest int
}

type node struct {
	fail    uint32
	child   uint32 // the first one; 0 is none
	sibling uint32
	found   uint32 // the nearest node on the chain of failure links, including itself, that ends a pattern; 0 is none
	pattern int32  // the pattern that ends here; -1 is none
	through int32  // some pattern that contains this node
	depth   int32
	letter  byte
}

// trie collects patterns until it is made into an automaton.
type trie struct {
	nodes   []node
	longest int
}

func newTrie() *trie {
	return &trie{nodes: []node{{pattern: -1, through: -1}}}
}

// add adds a pattern. Of equal patterns the first one counts.
func (t *trie) add(data []byte, pattern int32) {
	at := uint32(0)
	for _, b := range data {
		next := childOf(t.nodes, at, b)
		if next == 0 {
			next = uint32(len(t.nodes))
			t.nodes = append(t.nodes, node{
				letter: b, depth: t.nodes[at].depth + 1, pattern: -1, through: pattern, sibling: t.nodes[at].child,
			})
			t.nodes[at].child = next
		}
		at = next
	}
	if t.nodes[at].pattern < 0 {
		t.nodes[at].pattern = pattern
	}
	t.longest = max(t.longest, len(data))
}

func childOf(nodes []node, at uint32, b byte) uint32 {
	for c := nodes[at].child; c != 0; c = nodes[c].sibling {
		if nodes[c].letter == b {
			return c
		}
	}
	return 0
}

// automaton numbers the nodes by depth, sets the failure links and fills the rows.
func (t *trie) automaton(skip bool) *automaton {
	a := &automaton{skip: skip, longest: t.longest, nodes: make([]node, 1, len(t.nodes))}
	a.nodes[0] = t.nodes[0]
	// Each new node's child still refers to the old one until its turn comes.
	for i := 0; i < len(a.nodes); i++ {
		old := a.nodes[i].child
		a.nodes[i].child = 0
		for ; old != 0; old = t.nodes[old].sibling {
			n := t.nodes[old]
			n.sibling = a.nodes[i].child
			n.fail = a.failOf(uint32(i), n.letter)
			n.found = a.nodes[n.fail].found
			if n.pattern >= 0 {
				n.found = uint32(len(a.nodes))
			}
			a.nodes[i].child = uint32(len(a.nodes))
			a.nodes = append(a.nodes, n)
			if n.depth == 1 {
				a.full = uint32(len(a.nodes))
			}
		}
	}
	a.full = max(a.full, 1)
	a.rows = make([]uint32, int(a.full)*256)
	for n := range a.full {
		row := a.rows[n*256 : n*256+256]
		if n > 0 {
			copy(row, a.rows[:256])
		}
		for c := a.nodes[n].child; c != 0; c = a.nodes[c].sibling {
			row[a.nodes[c].letter] = c
		}
		if skip {
			for _, b := range separators {
				row[b] = n
			}
		}
	}
	return a
}

// failOf returns the failure link of the child by b of parent. All nodes of smaller depth exist
// already.
func (a *automaton) failOf(parent uint32, b byte) uint32 {
	for parent != 0 {
		parent = a.nodes[parent].fail
		if c := childOf(a.nodes, parent, b); c != 0 {
			return c
		}
	}
	return 0
}

// next makes one step from any node by a byte that is not a separator.
func (a *automaton) next(at uint32, b byte) uint32 {
	for at >= a.full {
		if c := childOf(a.nodes, at, b); c != 0 {
			return c
		}
		at = a.nodes[at].fail
	}
	return a.rows[at<<8|uint32(b)]
}

// separators may occur inside a wrapped form. A backslash followed by the letter of a line break or
// tab is also a separator, because JSON may contain base64 that is broken into lines.
var separators = [...]byte{'\n', '\r', ' ', '\t'}

func isSeparator(b byte) bool {
	return b <= ' ' && (b == ' ' || b == '\n' || b == '\r' || b == '\t') || b == '\\'
}

// isEscaped reports whether the byte after a backslash makes a separator.
func isEscaped(b byte) bool { return b == 'n' || b == 'r' || b == 't' }
