package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/host/pattern"
)

// zoneName matches names in the database of time zones. A matching name cannot lead out of that
// directory, because each part begins with a letter.
var zoneName = pattern.New(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z][A-Za-z0-9_+-]*)*$`)

// timeZone returns the name of the host's time zone, or "" if it is unknown. The name is the target
// of /etc/localtime. If that file is a copy, Debian's /etc/timezone contains the name.
func (c *caller) timeZone() string {
	etc := first(c.etc, "/etc")
	var name string
	if to, err := os.Readlink(filepath.Join(etc, "localtime")); err == nil {
		_, name, _ = strings.Cut(to, "/zoneinfo/")
	} else if text, err := os.ReadFile(filepath.Join(etc, "timezone")); err == nil {
		name = strings.TrimSpace(string(text))
	}
	if !zoneName.MatchString(name) {
		return ""
	}
	return name
}
