package mcpserver

import (
	"context"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

type changesIn struct {
	target
	Since string `json:"since,omitempty" jsonschema:"start, or the ID or name of a snapshot of this sandbox."`
	Diff  bool   `json:"diff,omitempty" jsonschema:"Include the changes in text files, as a unified diff."`
}

type changesOut struct {
	Since     string        `json:"since"`
	Dir       string        `json:"dir"`
	Files     int           `json:"files"`
	Added     int           `json:"added_lines"`
	Removed   int           `json:"removed_lines"`
	Changes   []changedFile `json:"changes"`
	Truncated bool          `json:"truncated" jsonschema:"There are more changes, or text was omitted."`
	Sandbox   string        `json:"sandbox"`
}

type changedFile struct {
	Path    string   `json:"path" jsonschema:"From the directory on."`
	Op      string   `json:"op" jsonschema:"created, changed or removed."`
	Added   int      `json:"added_lines"`
	Removed int      `json:"removed_lines"`
	Flags   []string `json:"flags,omitempty" jsonschema:"Why a person should review it before the export."`
}

func (w *view) addChanges() {
	add(w, tool{
		name: "fetch_changes", title: "Show changes",
		text: "Show which files of the workspace differ from the start or from a snapshot. Changes stay in the sandbox until the user applies them with crannog apply.",
		shape: func(p map[string]*jsonschema.Schema) {
			defaultsTo(p["since"], `"start"`)
		},
	}, w.changes)
}

func (w *view) changes(ctx context.Context, c *call, in changesIn) (changesOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return changesOut{}, err
	}
	o := crannog.ChangesOptions{Text: in.Diff}
	if in.Since != "" && in.Since != "start" {
		snap, err := w.snapshotFor(ctx, b, in.Since)
		if err != nil {
			return changesOut{}, err
		}
		o.Since = snap.ID
	}
	defer c.progress(ctx, func() string { return "comparing files" })()
	got, err := b.sb.Changes(ctx, o)
	if err != nil {
		return changesOut{}, err
	}
	out := changesOut{
		Since: got.Since, Dir: got.Dir, Files: got.Files, Added: got.Added, Removed: got.Removed,
		Changes: []changedFile{}, Truncated: got.Truncated, Sandbox: b.sb.ID(),
	}
	c.printf("%d %s changed in %s since %s, +%d −%d lines\n", got.Files, plural(got.Files, "file", "files"), got.Dir, got.Since, got.Added, got.Removed)
	for _, ch := range got.Changes {
		if c.text.Len() > maxText || len(out.Changes) >= maxListed {
			out.Truncated = true
			break
		}
		out.Changes = append(out.Changes, c.reportChange(ch))
	}
	if out.Truncated {
		c.printf("[more is omitted]\n")
	}
	return out, nil
}

// reportChange returns a line about one changed file.
func (c *call) reportChange(ch api.Change) changedFile {
	path := inertInPlace(strings.ReplaceAll(ch.Path, "\n", "\u2424"))
	c.printf("%s  %s  +%d −%d", ch.Op, path, ch.Added, ch.Removed)
	for _, f := range ch.Flags {
		c.printf("  %s", f)
	}
	c.printf("\n")
	if ch.Text != "" {
		text, _ := cut(inertInPlace(ch.Text), maxText/4)
		c.printf("%s", text)
	}
	return changedFile{Path: path, Op: ch.Op, Added: ch.Added, Removed: ch.Removed, Flags: ch.Flags}
}
