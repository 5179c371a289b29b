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

// parseRequirements reads a requirements.txt whose lines have --hash. It notes the files to which
// the text refers, which the search reads.
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
	if line == "" {
		return nil
	}
	if line[0] == '-' {
		return c.option(line)
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

// option notes the file of an option -r. Other options of pip, such as --index-url, name no
// versions. Those of -c (constraints) are of packages that another line requires.
func (c *collector) option(line string) error {
	var name string
	for _, o := range []string{"--requirement", "--constraint", "-r", "-c"} {
		rest, ok := strings.CutPrefix(line, o)
		// pip takes -rFILE, -r FILE, --requirement FILE and --requirement=FILE.
		if !ok || len(o) > 2 && rest != "" && !strings.ContainsAny(rest[:1], " \t=") {
			continue
		}
		if len(o) > 2 {
			rest = strings.TrimPrefix(rest, "=")
		}
		name = strings.Trim(strings.TrimSpace(rest), `"'`)
		break
	}
	if name == "" {
		return nil
	}
	if len(c.includes) >= maxIncludes {
		return errTooMany
	}
	c.includes = append(c.includes, name)
	return nil
}
