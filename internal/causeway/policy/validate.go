package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// mostProblems is how many an error lists: enough to mend a file in one go.
const mostProblems = 10

// checker collects what is wrong with a document.
type checker struct {
	lines map[string]int
	found []string
	more  int
}

func (c *checker) bad(field, format string, args ...any) {
	if len(c.found) == mostProblems {
		c.more++
		return
	}
	text := field + ": " + fmt.Sprintf(format, args...)
	if line := c.line(field); line > 0 {
		text = "line " + strconv.Itoa(line) + ": " + text
	}
	c.found = append(c.found, text)
}

// line is that of the field, or of what it should be in.
func (c *checker) line(field string) int {
	for {
		if n := c.lines[field]; n > 0 || field == "" {
			return n
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
}

func (c *checker) err() error {
	if len(c.found) == 0 {
		return nil
	}
	if c.more > 0 {
		c.found = append(c.found, fmt.Sprintf("and %d more", c.more))
	}
	return invalid(strings.Join(c.found, "; "))
}

// check says what is wrong with what the fields say. Lines are those of
// fields, where they are known.
func (d *Document) check(lines map[string]int) error {
	c := &checker{lines: lines}
	if d.Policy != "v1" {
		c.bad("policy", "must be v1, which is the only version")
	}
	return c.err()
}
