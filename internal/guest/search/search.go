// Package search owns searching for text in a sandbox's files from inside: the files do not leave
// the sandbox, and the user's permissions apply. It runs as "crannog-guest search".
package search

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

// Role is the first argument that selects the search.
const Role = "search"

// Query is a search request.
type Query struct {
	Pattern string
	Root    string // a directory or a file
	Glob    string // "" means all files
	Most    int    // maximum number of matches
}

// Args returns the command line of a query, after the program's name.
func (q Query) Args() []string {
	return []string{Role, strconv.Itoa(q.Most), q.Root, q.Glob, q.Pattern}
}

// Match is one line of output: a matching line or, at the end, the totals.
type Match struct {
	Path string `json:"p,omitempty"` // relative to the root
	Line int    `json:"l,omitempty"`
	Text string `json:"t,omitempty"`
	End  *End   `json:"end,omitempty"`
}

// End holds the totals, in the last line of output.
type End struct {
	Files   int    `json:"files"`             // searched
	Skipped int    `json:"skipped,omitempty"` // binary, too large or not readable
	More    bool   `json:"more,omitempty"`    // the search ended at its limits
	Error   string `json:"error,omitempty"`
}

// maxLine limits one line of output. The longest has a path and a shortened text.
const maxLine = 64 << 10

// Read calls each for every match of a search until its end. The data comes from a sandbox, so more
// than limit matches are an error.
func Read(r io.Reader, limit int, each func(Match)) (End, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 0; lines.Scan(); n++ {
		var m Match
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return End{}, fmt.Errorf("search: the output is not a search's: %w", err)
		}
		if m.End != nil {
			return *m.End, nil
		}
		if n >= limit {
			return End{}, errors.New("search: there are more matches than requested")
		}
		each(m)
	}
	if err := lines.Err(); err != nil {
		return End{}, fmt.Errorf("search: %w", err)
	}
	return End{}, io.ErrUnexpectedEOF
}

// Main runs the search that args describe (without the role), and returns an exit code.
func Main(args []string, w io.Writer) int {
	out := json.NewEncoder(w)
	end, err := run(args, func(m Match) error { return out.Encode(m) })
	if err != nil {
		end.Error = err.Error()
	}
	if out.Encode(Match{End: &end}) != nil || err != nil {
		return 1
	}
	return 0
}

func run(args []string, each func(Match) error) (End, error) {
	if len(args) != 4 {
		return End{}, errors.New("search takes four arguments")
	}
	limit, err := strconv.Atoi(args[0])
	if err != nil || limit < 1 {
		return End{}, errors.New("search: the first argument is not a number of matches")
	}
	s := &searcher{root: args[1], limit: limit, each: each}
	if args[2] != "" {
		if s.glob, err = Glob(args[2]); err != nil {
			return End{}, err
		}
	}
	// Matching the whole file quickly finds candidate files. Matching its lines then decides.
	if s.line, err = regexp.Compile(args[3]); err != nil {
		return End{}, err
	}
	if s.whole, err = regexp.Compile("(?m:" + args[3] + ")"); err != nil {
		return End{}, err
	}
	err = s.search()
	return s.end, err
}
