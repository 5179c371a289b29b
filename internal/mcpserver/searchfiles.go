package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/search"
)

type searchFilesIn struct {
	target
	Pattern string `json:"pattern" jsonschema:"Regular expression (RE2), matched line by line. (?i) at its start ignores case."`
	Path    string `json:"path,omitempty" jsonschema:"Directory or file to search; /workspace if absent."`
	Glob    string `json:"glob,omitempty" jsonschema:"Only these files, such as *.go or src/**/*.ts. Without a slash it matches names at any level."`
	Most    int    `json:"max_results,omitempty" jsonschema:"How many lines."`
}

type searchFilesOut struct {
	Matches   []match `json:"matches"`
	Files     int     `json:"files_searched"`
	Truncated bool    `json:"truncated" jsonschema:"There may be more."`
	Sandbox   string  `json:"sandbox"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

const (
	defaultMatches = 100
	maxMatches     = 1000
	// searchTime bounds a search. Matches that were found until then are shown.
	searchTime = 30 * time.Second
	// maxFound bounds the output of a search.
	maxFound = 4 << 20
	// guestProgram is the guest's own search program, which the sandbox cannot change.
	guestProgram = "/.crannog/crannog-guest"
)

func (w *view) addSearchFiles() {
	add(w, tool{
		name: "search_files", title: "Search in files",
		text: "Find lines that match a regular expression in the files below a directory. Binary files, .git and node_modules are skipped.",
		shape: func(p map[string]*jsonschema.Schema) {
			inRange(p["max_results"], 1, maxMatches)
			defaultsTo(p["max_results"], "100")
		},
	}, w.searchFiles)
}

func (w *view) searchFiles(ctx context.Context, c *call, in searchFilesIn) (searchFilesOut, error) {
	name, err := fsName(firstNonEmpty(in.Path, workspace))
	if err != nil {
		return searchFilesOut{}, err
	}
	q := search.Query{Pattern: in.Pattern, Root: absPath(name), Glob: in.Glob, Most: in.Most}
	if q.Most == 0 {
		q.Most = defaultMatches
	}
	if err := checkQuery(q); err != nil {
		return searchFilesOut{}, err
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return searchFilesOut{}, err
	}
	out := searchFilesOut{Matches: []match{}, Sandbox: b.sb.ID()}
	end, err := b.search(ctx, q, func(m search.Match) {
		out.Matches = append(out.Matches, match{inertInPlace(m.Path), m.Line, inertInPlace(m.Text)})
	})
	if err != nil {
		return searchFilesOut{}, err
	}
	out.Files, out.Truncated = end.Files, end.More
	for i, m := range out.Matches {
		if c.text.Len() > maxText {
			out.Matches, out.Truncated = out.Matches[:i], true
			break
		}
		c.printf("%s:%d:%s\n", m.Path, m.Line, m.Text)
	}
	if len(out.Matches) == 0 {
		c.printf("[no match in %d files below %s]\n", out.Files, inertInPlace(q.Root))
	} else if out.Truncated {
		c.printf("[there may be more: narrow the path, the glob or the pattern]\n")
	}
	return out, nil
}

// checkQuery reports mistakes before the search starts.
func checkQuery(q search.Query) error {
	if len(q.Pattern) == 0 || len(q.Pattern) > 4096 {
		return fault.New(fault.Invalid, "invalid_pattern", "the pattern is empty or too long")
	}
	if _, err := regexp.Compile(q.Pattern); err != nil {
		return fault.New(fault.Invalid, "invalid_pattern", err.Error()).WithHint("RE2 has no look-around and no back-references")
	}
	if q.Glob != "" {
		if _, err := search.Glob(q.Glob); err != nil {
			return fault.New(fault.Invalid, "invalid_glob", err.Error())
		}
	}
	return nil
}

// search runs the guest's program inside.
func (b *agentSandbox) search(ctx context.Context, q search.Query, each func(search.Match)) (search.End, error) {
	cmd := b.sb.CommandContext(ctx, guestProgram, q.Args()...)
	cmd.Timeout = searchTime
	cmd.Dir = "/"
	out := &limited{limit: maxFound}
	cmd.Stdout = out
	err := cmd.Run()
	if errors.Is(err, crannog.ErrTimeout) {
		end, _ := search.Read(&out.buf, q.Most, each) // it does not end
		end.More = true
		return end, nil
	}
	if _, exited := errors.AsType[*crannog.ExitError](err); err != nil && !exited {
		return search.End{}, err
	}
	end, readErr := search.Read(&out.buf, q.Most, each)
	switch {
	case end.Error != "":
		return end, fault.New(fault.NotFound, "search_failed", end.Error)
	case readErr != nil:
		return end, fault.Wrap(readErr, fault.Unsupported, "no_search", "this sandbox cannot search").
			WithHint("use grep in bash")
	}
	return end, nil
}

// limited is a buffer that returns an error when it is full, which ends the program.
type limited struct {
	buf   bytes.Buffer
	limit int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.buf.Len()+len(p) > l.limit {
		return 0, io.ErrShortBuffer
	}
	return l.buf.Write(p)
}
