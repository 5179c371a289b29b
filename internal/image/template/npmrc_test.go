package template

import (
	"os"
	"path/filepath"
	"testing"
)

// F7: npm installs a user's global packages in the user's home. Of the host's configuration only
// the registries are visible in a sandbox.
func TestF7NpmConfig(t *testing.T) {
	root := t.TempDir()
	defaults := "prefix=${HOME}/.local\nupdate-notifier=false\n"
	if got := string(npmConfig(root)); got != defaults {
		t.Errorf("npmConfig without a file of the host: got %q, want %q", got, defaults)
	}
	for _, c := range []struct{ host, want string }{
		{"registry = https://npm.example.com/\ncafile=/etc/ssl/certs/ca.pem\n", "registry=https://npm.example.com/\ncafile=/etc/ssl/certs/ca.pem\n"},
		{"@acme:registry=https://npm.example.com/acme/\n", "@acme:registry=https://npm.example.com/acme/\n"},
		{"prefix=/opt/npm\n; a note\n\n", ""},
		{"//npm.example.com/:_authToken=secret\n_auth=secret\n_password=secret\nkey=secret\nproxy=http://me:secret@proxy/\n", ""},
		{"registry=https://me:secret@npm.example.com/\n@a:registry=https://npm.example.com/?token=secret\nregistry=\"https://secret@npm/\"\n", ""},
	} {
		if err := os.MkdirAll(filepath.Join(root, "usr/etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "usr/etc/npmrc"), []byte(c.host), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := string(npmConfig(root)); got != defaults+c.want {
			t.Errorf("npmConfig with %q: got %q, want %q", c.host, got, defaults+c.want)
		}
	}
}
