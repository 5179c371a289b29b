package mcpserver

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/search"
)

type listFilesIn struct {
	target
	Path  string `json:"path,omitempty" jsonschema:"The directory; /workspace if absent."`
	Depth int    `json:"depth,omitempty" jsonschema:"How many levels; 2 if absent, 12 with a glob."`
	Glob  string `json:"glob,omitempty" jsonschema:"Only these files, such as *.go or src/**/*.ts. Without a slash it matches names at any level."`
}

type listFilesOut struct {
	Path      string     `json:"path"`
	Files     []fileInfo `json:"files"`
	Truncated bool       `json:"truncated" jsonschema:"There are more."`
	Sandbox   string     `json:"sandbox"`
}

type fileInfo struct {
	Path  string `json:"path" jsonschema:"From the directory on."`
	Type  string `json:"type" jsonschema:"file, dir, link or other."`
	Bytes int64  `json:"size_bytes"`
}

const (
	// maxListed is the maximum number of files in a list. A longer list would not help its reader.
	maxListed = 1000
	// maxVisited bounds the directories that are read for one list.
	maxVisited = 2000
)

func (w *view) addListFiles() {
	add(w, tool{
		name: "list_files", title: "List files",
		text: "List a directory and all files below it, at most 1000. The content of .git and node_modules is listed only if the path names them.",
		shape: func(p map[string]*jsonschema.Schema) {
			inRange(p["depth"], 1, 50)
		},
	}, w.listFiles)
}

func (w *view) listFiles(ctx context.Context, c *call, in listFilesIn) (listFilesOut, error) {
	name, err := fsName(firstNonEmpty(in.Path, workspace))
	if err != nil {
		return listFilesOut{}, err
	}
	l := &lister{depth: in.Depth, files: []fileInfo{}}
	if in.Glob != "" {
		if l.glob, err = search.Glob(in.Glob); err != nil {
			return listFilesOut{}, fault.New(fault.Invalid, "invalid_glob", err.Error())
		}
	}
	if l.depth == 0 {
		l.depth = 2
		if l.glob != nil {
			l.depth = 12
		}
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return listFilesOut{}, err
	}
	l.fs = b.sb.FS().WithContext(ctx)
	if err := l.walk(name); err != nil {
		return listFilesOut{}, err
	}
	out := listFilesOut{Path: absPath(name), Files: l.files, Truncated: l.more, Sandbox: b.sb.ID()}
	c.printf("%s\n", inertInPlace(out.Path))
	for i, f := range out.Files {
		if c.text.Len() > maxText {
			out.Files, out.Truncated = out.Files[:i], true
			break
		}
		mark := ""
		if f.Type == "dir" {
			mark = "/"
		}
		c.printf("%s%s", f.Path, mark)
		if f.Type == "file" {
			c.printf("  %d", f.Bytes)
		}
		c.printf("\n")
	}
	switch {
	case out.Truncated:
		c.printf("[there are more: choose a subdirectory, or use a glob]\n")
	case len(out.Files) == 0:
		c.printf("[nothing]\n")
	}
	return out, nil
}

// lister collects files level by level, so that those nearest to the directory come first.
type lister struct {
	fs      *crannog.FS
	depth   int
	glob    *regexp.Regexp
	files   []fileInfo
	more    bool
	visited int
}

func (l *lister) walk(root string) error {
	type dir struct {
		name, rel string
		level     int
	}
	queue := []dir{{root, "", 1}}
	for len(queue) > 0 {
		d := queue[0]
		queue = queue[1:]
		if l.visited++; l.visited > maxVisited {
			l.more = true
			return nil
		}
		entries, err := l.fs.ReadDir(d.name)
		switch {
		case d.rel != "" && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)):
			continue // it is listed without its content
		case err != nil:
			return err
		}
		for _, e := range entries {
			rel := path.Join(d.rel, e.Name())
			if !l.take(rel, e) {
				return nil
			}
			if e.IsDir() && d.level < l.depth && e.Name() != ".git" && e.Name() != "node_modules" {
				queue = append(queue, dir{path.Join(d.name, e.Name()), rel, d.level + 1})
			}
		}
	}
	return nil
}

// take adds an entry, and reports whether more may follow.
func (l *lister) take(rel string, e fs.DirEntry) bool {
	if l.glob != nil && (e.IsDir() || !l.glob.MatchString(rel)) {
		return true
	}
	if len(l.files) >= maxListed {
		l.more = true
		return false
	}
	f := fileInfo{Path: inertInPlace(strings.ReplaceAll(rel, "\n", "\u2424")), Type: "other"}
	switch t := e.Type(); {
	case t.IsDir():
		f.Type = "dir"
	case t&fs.ModeSymlink != 0:
		f.Type = "link"
	case t.IsRegular():
		f.Type = "file"
	}
	if info, err := e.Info(); err == nil && f.Type == "file" {
		f.Bytes = info.Size()
	}
	l.files = append(l.files, f)
	return true
}
