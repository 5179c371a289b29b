package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
)

type editFileIn struct {
	target
	Path  string `json:"path" jsonschema:"The file, absolute or from /workspace on."`
	Edits []edit `json:"edits" jsonschema:"Changes in order, each made to what the one before left. All are made or none."`
}

type edit struct {
	Old string `json:"old" jsonschema:"Text to replace, exactly as in the file. It must occur once, unless replace_all."`
	New string `json:"new" jsonschema:"What replaces it."`
	All bool   `json:"replace_all,omitempty" jsonschema:"Replace every occurrence."`
}

type editFileOut struct {
	Path         string `json:"path"`
	Diff         string `json:"diff" jsonschema:"Unified diff of what changed."`
	Replacements int    `json:"replacements"`
	Sandbox      string `json:"sandbox"`
}

const (
	// maxEdited bounds the size of an edited file, of which several copies are in memory.
	maxEdited = 8 << 20
	maxEdits  = 200
)

func (w *view) addEditFile() {
	add(w, tool{
		name: "edit_file", title: "Edit a file", changes: true, destroys: true,
		text: "Replace exact pieces of text in a file, all at once or not at all, and return the difference. Read the file first.",
		shape: func(p map[string]*jsonschema.Schema) {
			least, limit := 1, maxEdits
			p["edits"].MinItems, p["edits"].MaxItems = &least, &limit
		},
	}, w.editFile)
}

func (w *view) editFile(ctx context.Context, c *call, in editFileIn) (editFileOut, error) {
	name, err := fsName(in.Path)
	if err != nil {
		return editFileOut{}, err
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return editFileOut{}, err
	}
	b.editing.Lock()
	defer b.editing.Unlock()
	files := b.sb.FS().WithContext(ctx)
	before, info, err := readEdited(files, name)
	if err != nil {
		return editFileOut{}, err
	}
	after, n, err := replace(before, in.Edits, absPath(name))
	if err != nil {
		return editFileOut{}, err
	}
	// A symbolic link is preserved: its target is replaced.
	if entry, ok := info.Sys().(*crannog.Entry); ok && entry.Link != "" {
		name = cleanName(entry.Link)
	}
	if err := swap(files, name, after, info.Mode().Perm()); err != nil {
		return editFileOut{}, err
	}
	diff := difference(before, after, "a"+absPath(name), "b"+absPath(name))
	short, _ := cut(inertInPlace(diff), maxText)
	c.printf("%s", short)
	return editFileOut{Path: absPath(name), Diff: short, Replacements: n, Sandbox: b.sb.ID()}, nil
}

// readEdited reads a text file for editing.
func readEdited(files *crannog.FS, name string) (string, fs.FileInfo, error) {
	f, err := files.Open(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	if info.IsDir() {
		return "", nil, fault.Newf(fault.Invalid, "not_a_file", "%s is a directory", absPath(name))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxEdited+1))
	switch {
	case err != nil:
		return "", nil, err
	case len(data) > maxEdited:
		return "", nil, fault.Newf(fault.Exhausted, "file_too_large", "%s is larger than %d bytes", absPath(name), maxEdited).
			WithHint("change it with a program, by the tool bash")
	case !utf8.Valid(data):
		return "", nil, fault.Newf(fault.Invalid, "not_text", "%s is not UTF-8 text", absPath(name)).WithHint("change it with a program, by the tool bash")
	}
	return string(data), info, nil
}

// replace applies the edits and returns the number of replacements.
func replace(text string, edits []edit, name string) (string, int, error) {
	total := 0
	for i, e := range edits {
		n := 0
		if e.Old != "" {
			n = strings.Count(text, e.Old)
		}
		switch {
		case e.Old == "":
			return "", 0, fault.Newf(fault.Invalid, "empty_old", "edit %d: old is empty", i+1).WithHint("write_file writes a whole file")
		case e.Old == e.New:
			return "", 0, fault.Newf(fault.Invalid, "no_change", "edit %d: old and new are equal", i+1)
		case n == 0:
			return "", 0, fault.Newf(fault.Conflict, "text_not_found", "edit %d: %s does not contain the text to replace; nothing was changed", i+1, name).
				WithHint("read_file shows the text as it is, with its spaces")
		case n > 1 && !e.All:
			return "", 0, fault.Newf(fault.Conflict, "text_not_unique", "edit %d: the text to replace occurs %d times in %s; nothing was changed", i+1, n, name).
				WithHint("include more of the lines around it, or set replace_all")
		}
		if grown := len(text) + n*(len(e.New)-len(e.Old)); grown > maxEdited {
			return "", 0, fault.Newf(fault.Exhausted, "file_too_large", "edit %d would make %s larger than %d bytes", i+1, name, maxEdited)
		}
		text = strings.ReplaceAll(text, e.Old, e.New)
		total += n
	}
	return text, total, nil
}

// swap replaces a file atomically.
func swap(files *crannog.FS, name, text string, mode fs.FileMode) error {
	temp := path.Join(path.Dir(name), fmt.Sprintf(".%.80s.%s", path.Base(name), rand.Text()[:8]))
	err := files.WriteFile(temp, []byte(text), mode)
	if err == nil {
		err = files.Rename(temp, name)
	}
	if err != nil {
		// The first error is the cause.
		_ = files.WithContext(context.Background()).RemoveAll(temp)
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			p.Path = name
		}
	}
	return err
}
