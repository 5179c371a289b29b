package guestmain

import (
	"log/slog"
	"os"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// A guest that sees the host's files creates none, and rejects a configuration that would.
func TestHostFilesAreNotChanged(t *testing.T) {
	for name, c := range map[string]struct {
		config   guest.Config
		rejected bool
	}{
		"no changes":       {guest.Config{HostFiles: true}, false},
		"a name server":    {guest.Config{HostFiles: true, Offline: true}, true},
		"an archive":       {guest.Config{HostFiles: true, Archive: true}, true},
		"a file":           {guest.Config{HostFiles: true, Files: []guest.File{{Path: "/etc/resolv.conf"}}}, true},
		"a path to remove": {guest.Config{HostFiles: true, Absent: []string{"/etc/x"}}, true},
		"a link":           {guest.Config{HostFiles: true, Tools: guest.Tools{Links: []guest.Link{{At: "/a", To: "/b"}}}}, true},
		"a copy":           {guest.Config{HostFiles: true, Tools: guest.Tools{Files: []guest.File{{Path: "/a"}}}}, true},
		"files of its own": {guest.Config{Files: []guest.File{{Path: "/etc/resolv.conf"}}}, false},
		"only a host name": {guest.Config{HostFiles: true, Hostname: "box"}, false},
	} {
		if err := checkHostFiles(c.config); (err != nil) != c.rejected {
			t.Errorf("%s: checkHostFiles returned %v, want an error: %t", name, err, c.rejected)
		}
		if !c.config.HostFiles {
			continue
		}
		root := t.TempDir()
		b := &guestSandbox{platform: platform{root: root}, users: identity.NewPasswd("/etc"), log: slog.New(slog.DiscardHandler)}
		c.config.DefaultUser = "root"
		if err := b.setUp(t.Context(), c.config, true); (err != nil) != c.rejected {
			t.Errorf("%s: setUp returned %v, want an error: %t", name, err, c.rejected)
		}
		if created, err := os.ReadDir(root); err != nil || len(created) > 0 {
			t.Errorf("%s: setUp created %v, %v", name, created, err)
		}
	}
}
