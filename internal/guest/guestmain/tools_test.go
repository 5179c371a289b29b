package guestmain

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// F15: programs of version managers are at the host's paths. Every user can traverse the
// directories above them, without listing them.
func TestF15ToolsAreAtPathsOfHost(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"root": 0o700, "home/user": 0o755, ".crannog/tools/1/bin": 0o755} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	user := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: "/home/user"}
	err := showTools(root, guest.Tools{
		Links: []guest.Link{{At: "/root/.cargo/bin", To: "../../.crannog/tools/1/bin"}, {At: "/home/user/.local/bin", To: "/.crannog/tools/2"}, {At: "/home/me/.pyenv", To: "/.crannog/tools/3"}},
		Files: []guest.File{{Path: ".tool-versions", Mode: 0o644, Data: []byte("x")}},
	}, user)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"root": 0o711, "root/.cargo": 0o755, "home/me": 0o755, "home/user/.local": 0o755, "home/user/.tool-versions": 0o644} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s: got %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "root/.cargo/bin")); err != nil || to != "../../.crannog/tools/1/bin" {
		t.Errorf("link target: got %s, %v", to, err)
	}
	for _, bad := range []guest.Tools{{Links: []guest.Link{{At: "/a/../b", To: "/x"}}}, {Links: []guest.Link{{At: "a", To: "/x"}}}, {Files: []guest.File{{Path: "../x"}}}} {
		if err := showTools(root, bad, user); err == nil {
			t.Errorf("showTools accepted %+v", bad)
		}
	}
}

// A file of the template at the path of a tool is not replaced. Instead showTools fails, because
// programs would be missing without a reason.
func TestToolsReplaceNoFiles(t *testing.T) {
	user := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: "/home/user"}
	for name, tools := range map[string]guest.Tools{
		"below a file":           {Links: []guest.Link{{At: "/file/bin/cargo", To: "/.crannog/tools/1"}}},
		"at a file":              {Links: []guest.Link{{At: "/file", To: "/.crannog/tools/1"}}},
		"in an absent directory": {Files: []guest.File{{Path: "absent/f", Mode: 0o644}}},
		"at a directory":         {Files: []guest.File{{Path: "dir", Mode: 0o644}}},
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "home/user/dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "file"), []byte("original"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := showTools(root, tools, user); err == nil {
			t.Errorf("%s: showTools returned no error", name)
		}
		if text, err := os.ReadFile(filepath.Join(root, "file")); err != nil || string(text) != "original" {
			t.Errorf("%s: the file has %q, %v", name, text, err)
		}
	}
}
