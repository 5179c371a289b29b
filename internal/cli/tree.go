package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// node is a state from which others were created: a template, a snapshot or a sandbox. The other
// fields are for display.
type node struct {
	Kind     string  `json:"kind"` // template, snapshot or sandbox
	ID       string  `json:"id"`
	Name     string  `json:"name,omitempty"`
	State    string  `json:"state,omitempty"`  // of a sandbox
	CopyOf   string  `json:"parent,omitempty"` // the sandbox of which it is a copy
	Children []*node `json:"children,omitempty"`

	at    time.Time
	about string
}

func (a stateVerbs) treeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tree", Short: "Show the tree of sandboxes and snapshots", Args: cobra.NoArgs,
		Long: "Show the tree of sandboxes and snapshots. A snapshot is below the snapshot that its\n" +
			"sandbox came from at that time, a sandbox is below the one that it came from last, and the\n" +
			"rest is below its template.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				roots, err := readTrees(cmd.Context(), c)
				if err != nil {
					return err
				}
				if a.json {
					return a.object(roots)
				}
				for _, root := range roots {
					if a.quiet {
						a.printIDs(root)
					} else {
						a.printNode(root, "", "")
					}
				}
				return nil
			})
		},
	}
	return cmd
}

// readTrees reads all sandboxes and snapshots, and returns their trees.
func readTrees(ctx context.Context, c *connection) ([]*node, error) {
	snaps, err := c.Snapshots(ctx, crannog.SnapshotOptions{})
	if err != nil {
		return nil, fail("list snapshots", err)
	}
	sandboxes, err := c.List(ctx, crannog.ListOptions{States: alive})
	if err != nil {
		return nil, fail("list sandboxes", err)
	}
	return buildTrees(snaps, sandboxes, time.Now()), nil
}

// buildTrees builds the trees. Sandboxes and snapshots whose snapshot was removed are placed below
// its template.
func buildTrees(snaps []api.Snapshot, sandboxes []api.Sandbox, now time.Time) []*node {
	roots := []*node{}
	byID := make(map[string]*node, len(snaps))
	for _, s := range snaps {
		byID[s.ID] = &node{
			Kind: "snapshot", ID: s.ID, Name: s.Name, at: s.CreatedAt,
			about: fmt.Sprintf("snapshot of %s, %s, %s", s.Sandbox, ago(s.CreatedAt, now), bytesText(s.Bytes)),
		}
	}
	addBelow := func(parent, template string, n *node) {
		p := byID[parent]
		if p == nil {
			i := slices.IndexFunc(roots, func(r *node) bool { return r.ID == template })
			if i < 0 {
				i, roots = len(roots), append(roots, &node{Kind: "template", ID: template})
			}
			p = roots[i]
		}
		p.Children = append(p.Children, n)
	}
	for _, s := range snaps {
		parent := s.Parent
		if parent == s.ID {
			parent = "" // a faulty server could send a cycle
		}
		addBelow(parent, s.Template, byID[s.ID])
	}
	for _, b := range sandboxes {
		n := &node{Kind: "sandbox", ID: b.ID, Name: b.Name, State: b.State, CopyOf: b.Parent, at: b.StartedAt, about: "sandbox, " + b.State}
		if b.Parent != "" {
			n.about += ", copy of " + b.Parent
		}
		addBelow(b.At, b.Template, n)
	}
	for _, r := range roots {
		r.sort()
	}
	slices.SortFunc(roots, func(x, y *node) int { return strings.Compare(x.ID, y.ID) })
	return roots
}

// sort orders children by creation time.
func (n *node) sort() {
	slices.SortFunc(n.Children, func(x, y *node) int {
		if c := x.at.Compare(y.at); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	for _, c := range n.Children {
		c.sort()
	}
}

// printIDs prints the ID of a node and of its descendants, in the order of the tree.
func (a stateVerbs) printIDs(n *node) {
	fmt.Fprintln(a.Stdout, oneLine(n.ID))
	for _, c := range n.Children {
		a.printIDs(c)
	}
}

// printNode draws a node after the prefix lead, and its children after the prefix rest.
func (a stateVerbs) printNode(n *node, lead, rest string) {
	text := n.ID
	if n.Name != "" {
		text = n.Name + "  " + n.ID
	}
	if n.about != "" {
		text += "  (" + n.about + ")"
	}
	fmt.Fprintln(a.Stdout, lead+oneLine(text))
	for i, c := range n.Children {
		if i == len(n.Children)-1 {
			a.printNode(c, rest+"└── ", rest+"    ")
		} else {
			a.printNode(c, rest+"├── ", rest+"│   ")
		}
	}
}
