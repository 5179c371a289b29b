package lockfile

import (
	"bufio"
	"bytes"
	"strings"

	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/packages"
)

// requirement is a line with an exact version: NAME[EXTRAS]==VERSION.
var requirement = pattern.New(`^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*={2,3}\s*([^\s;*,]+)\s*(?:;|$|\s-)`)

// parseRequirements reads a requirements.txt whose lines have --hash. Files that it refers to are
// not read.
func parseRequirements(text []byte, c *collector) error {
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, maxLine)
	var line strings.Builder
	for scan.Scan() {
		part := scan.Text()
		if at := strings.Index(part, " #"); at >= 0 {
			part = part[:at]
		}
		if strings.HasPrefix(strings.TrimSpace(part), "#") {
			part = ""
		}
		part = strings.TrimSpace(part)
		rest, more := strings.CutSuffix(part, `\`)
		if line.Len()+len(rest) > maxLine {
			return errTooLarge
		}
		line.WriteString(rest + " ")
		if more {
			continue
		}
		if err := c.requirement(strings.TrimSpace(line.String())); err != nil {
			return err
		}
		line.Reset()
	}
	if err := scan.Err(); err != nil {
		return err
	}
	return c.requirement(strings.TrimSpace(line.String()))
}

// requirement adds a line.
func (c *collector) requirement(line string) error {
	// Options of pip, such as -r and --index-url.
	if line == "" || line[0] == '-' {
		return nil
	}
	var digests []packages.Digest
	fields := strings.Fields(line)
	for i, f := range fields {
		text, ok := strings.CutPrefix(f, "--hash=")
		if f == "--hash" && i+1 < len(fields) {
			text, ok = fields[i+1], true
		}
		if ok {
			digests = append(digests, pythonDigest(text))
		}
	}
	m := requirement.Regexp().FindStringSubmatch(line)
	if m == nil {
		c.without++
		return nil
	}
	return c.add(packages.PyPI, m[1], m[2], digests...)
}
