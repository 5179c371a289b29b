package guestmain

import (
	"log/slog"
	"os"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// A guest that sees the host's files creates none, and rejects a configuration that would.
func TestFilesOfTheHostAreLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		config  guest.Config
		refused bool
	}{
		"nothing":             {guest.Config{HostFiles: true}, false},
		"a name server":       {guest.Config{HostFiles: true, Offline: true}, true},
		"an archive":          {guest.Config{HostFiles: true, Archive: true}, true},
		"a file":              {guest.Config{HostFiles: true, Files: []guest.File{{Path: "/etc/resolv.conf"}}}, true},
		"a path to remove":    {guest.Config{HostFiles: true, Absent: []string{"/etc/x"}}, true},
		"a link":              {guest.Config{HostFiles: true, Tools: guest.Tools{Links: []guest.Link{{At: "/a", To: "/b"}}}}, true},
		"a copy":              {guest.Config{HostFiles: true, Tools: guest.Tools{Files: []guest.File{{Path: "/a"}}}}, true},
		"files of its own":    {guest.Config{Files: []guest.File{{Path: "/etc/resolv.conf"}}}, false},
		"no file, and a name": {guest.Config{HostFiles: true, Hostname: "box"}, false},
	} {
		if err := checkHostFiles(c.config); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if !c.config.HostFiles {
			continue
		}
		root := t.TempDir()
		b := &guestSandbox{surroundings: surroundings{root: root}, users: identity.NewPasswd("/etc"), log: slog.New(slog.DiscardHandler)}
		c.config.DefaultUser = "root"
		if err := b.arrange(t.Context(), c.config, true); (err != nil) != c.refused {
			t.Errorf("%s: arranged: %v", name, err)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
			t.Errorf("%s: made %v, %v", name, left, err)
		}
	}
}
