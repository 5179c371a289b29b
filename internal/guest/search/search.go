// Package search owns looking for text in a sandbox's files from inside: the
// files never leave the sandbox for it, and its user's permissions hold. The
// guest's program does it when it is started as "crannog-guest search".
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

// Role is the first argument of the guest's program that makes it search.
const Role = "search"

// Query is what to look for.
type Query struct {
	Pattern string
	Root    string // a directory or a file
	Glob    string // "" is every file
	Most    int    // matches
}

// Args is the command line of a query, after the program's name.
func (q Query) Args() []string {
	return []string{Role, strconv.Itoa(q.Most), q.Root, q.Glob, q.Pattern}
}

// Match is one line of output: a line that matches, or, at the end, what was
// looked at.
type Match struct {
	Path string `json:"p,omitempty"` // from the root on
	Line int    `json:"l,omitempty"`
	Text string `json:"t,omitempty"`
	End  *End   `json:"end,omitempty"`
}

// End is the last line of output.
type End struct {
	Files   int    `json:"files"`             // searched
	Skipped int    `json:"skipped,omitempty"` // binary, too large or not readable
	More    bool   `json:"more,omitempty"`    // the search ended at its bounds
	Error   string `json:"error,omitempty"`
}

// maxLine bounds one line of output. The longest holds a path and a shortened
// text.
const maxLine = 64 << 10

// Read hands on what a search printed, until its end. What it reads comes from
// a sandbox: more than most matches are an error.
func Read(r io.Reader, most int, each func(Match)) (End, error) {
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
		if n >= most {
			return End{}, errors.New("search: there are more matches than were asked for")
		}
		each(m)
	}
	if err := lines.Err(); err != nil {
		return End{}, fmt.Errorf("search: %w", err)
	}
	return End{}, io.ErrUnexpectedEOF
}

// Main searches as args say, without the role, and returns an exit code.
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
	most, err := strconv.Atoi(args[0])
	if err != nil || most < 1 {
		return End{}, errors.New("search: the first argument is no number of matches")
	}
	s := &searcher{root: args[1], most: most, each: each}
	if args[2] != "" {
		if s.glob, err = Glob(args[2]); err != nil {
			return End{}, err
		}
	}
	// As a whole it finds the files that matter quickly; by lines it decides.
	if s.line, err = regexp.Compile(args[3]); err != nil {
		return End{}, err
	}
	if s.whole, err = regexp.Compile("(?m:" + args[3] + ")"); err != nil {
		return End{}, err
	}
	err = s.search()
	return s.end, err
}
