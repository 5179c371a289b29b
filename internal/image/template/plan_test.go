package template

import (
	"os"
	"path/filepath"
	"testing"
)

// If the host has only python3, the sandbox gets a python in a directory of its own. If the host
// has python, that is used.
func TestLinkBareNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		links map[string]string // of /usr/bin
		want  string
	}{
		{"only the numbered name", []string{"/usr/bin/python3.11"}, map[string]string{"python3": "python3.11"}, "/usr/bin/python3"},
		{"in /usr/local", []string{"/usr/local/bin/python3"}, nil, "/usr/local/bin/python3"},
		{"both", []string{"/usr/bin/python3", "/usr/local/bin/python"}, nil, ""},
		{"none", nil, nil, ""},
		{"a link to nothing", nil, map[string]string{"python3": "python3.9"}, ""},
	} {
		root := t.TempDir()
		for _, dir := range []string{"usr/bin", "usr/local/bin"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range c.files {
			if err := os.WriteFile(filepath.Join(root, f), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, target := range c.links {
			if err := os.Symlink(target, filepath.Join(root, "usr/bin", name)); err != nil {
				t.Fatal(err)
			}
		}
		p, err := planHost(root)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.links["/.crannog/bin/python"]; got != c.want {
			t.Errorf("%s: link of python: got %q, want %q", c.name, got, c.want)
		}
		dir := filepath.Join(t.TempDir(), "r")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := p.write(dir); err != nil {
			t.Error(err)
		}
	}
}
