package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// findSnapshot resolves a snapshot argument: name or ID. It suggests a similar name.
func (c *connection) findSnapshot(ctx context.Context, ref string) (api.Snapshot, error) {
	snap, err := c.FindSnapshot(ctx, ref)
	if err == nil {
		return snap, nil
	}
	help := ""
	if crannog.Code(err) == "snapshot_not_found" {
		help = "crannog snapshot ls lists them"
		if name := nearest(ref, c.snapshotNames(ctx)); name != "" {
			help = fmt.Sprintf("did you mean %s? crannog snapshot ls lists all", name)
		}
	}
	return snap, fail(fmt.Sprintf("find snapshot %q", ref), err).hint(first(help, findHint(err)))
}

// snapshotNames returns existing names. It returns none if they cannot be listed, because they only
// serve suggestions.
func (c *connection) snapshotNames(ctx context.Context) []string {
	list, err := c.Snapshots(ctx, crannog.SnapshotOptions{})
	if err != nil {
		return nil
	}
	var names []string
	for _, snap := range list {
		if snap.Name != "" && !slices.Contains(names, snap.Name) {
			names = append(names, snap.Name)
		}
	}
	return names
}

// nearest returns the name that a mistyped one most likely means, or "".
func nearest(word string, names []string) string {
	best, name := max(1, len(word)/3)+1, ""
	for _, n := range names {
		if d := edits(word, n); d < best {
			best, name = d, n
		}
	}
	return name
}

// edits returns the number of characters to insert, delete, change or swap with the next one in
// order to turn a into b.
func edits(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case x[i-1] == y[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
