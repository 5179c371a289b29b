package hosttools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// home creates files below a directory. A name that ends with a slash makes a directory, a text
// that begins with -> a link.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		to, link := strings.CutPrefix(text, "->")
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case link:
			err = os.Symlink(to, path)
		default:
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// dirs returns the manager and directory of each tree.
func dirs(trees []Tree, home string) (list []string) {
	for _, t := range trees {
		list = append(list, t.Manager+":"+strings.TrimPrefix(t.Dir, home+"/"))
	}
	return list
}

func TestF15Find(t *testing.T) {
	dir := home(t, map[string]string{
		".pyenv/shims/python3": "", ".pyenv/bin/pyenv": "", ".cargo/bin/cargo": "", ".cargo/credentials.toml": "", ".rustup/toolchains/": "",
		".nvm/versions/node/v9.1.0/bin/node": "", ".nvm/versions/node/v20.2.0/bin/node": "", "elsewhere/bin/volta": "",
		".local/share/uv/credentials/": "", ".local/share/uv/python/cpython-3.12/bin/python3": "", ".asdf/shims/x": "", ".tool-versions": "ruby 3.3.0\n",
	})
	h := Host{Home: dir, Variable: func(name string) string {
		return map[string]string{"VOLTA_HOME": dir + "/elsewhere", "CARGO_HOME": "relative", "PYENV_ROOT": dir + "/.pyenv"}[name]
	}}
	trees, err := h.Find([]string{All})
	want := []string{"pyenv:.pyenv", "nvm:.nvm", "asdf:.asdf", "cargo:.cargo/bin", "rustup:.rustup", "uv:.local/share/uv/python", "volta:elsewhere"}
	if got := dirs(trees, dir); err != nil || !slices.Equal(got, want) {
		t.Fatalf("Find: got %v, error %v, want %v", got, err, want)
	}
	if got := trees[1].Bin; len(got) != 2 || !strings.Contains(got[0], "v20") {
		t.Errorf("the newest node is not first: %v", got)
	}
	if trees[0].Env["PYENV_ROOT"] != dir+"/.pyenv" || string(trees[2].Copy[".tool-versions"]) != "ruby 3.3.0\n" {
		t.Errorf("Find: got %+v", trees)
	}
	if trees, err := h.Find([]string{"cargo", "nvm"}); err != nil || len(trees) != 2 {
		t.Errorf("Find: got %v, error %v", trees, err)
	}
	if _, err := h.Find([]string{"fnm"}); fault.CodeOf(err) != "tools_not_found" {
		t.Errorf("Find of a manager that is not installed: got %v, want tools_not_found", err)
	}
	if _, err := h.Find([]string{"all", "fmn"}); fault.CodeOf(err) != "tools_unknown" {
		t.Errorf("Find of an unknown manager: got %v, want tools_unknown", err)
	}
	if trees, err := (Host{}).Find([]string{All}); err != nil || len(trees) != 0 {
		t.Errorf("Find without a home: got %v, error %v", trees, err)
	}
}

// A variable that names the home directory, its parent or the server's state would show all keys
// there.
func TestF15HomeIsNeverShown(t *testing.T) {
	dir := home(t, map[string]string{"me/.ssh/id_rsa": "key", "me/bin/x": "", "me/state/bin/": "", "me/.pyenv": "->.", "me/.rbenv": "->state"})
	me := filepath.Join(dir, "me")
	for _, root := range []string{me, dir, "/", me + "/", "/usr", "/etc", "/proc/self", me + "/state", me + "/bin/.."} {
		for _, variable := range []string{"PYENV_ROOT", "NVM_DIR", "RUSTUP_HOME"} {
			h := Host{Home: me, Private: []string{me + "/state"}, Variable: func(name string) string {
				if name == variable {
					return root
				}
				return ""
			}}
			trees, err := h.Find([]string{All})
			if err != nil {
				t.Fatal(err)
			}
			for _, tree := range trees {
				if tree.Manager != "go" {
					t.Errorf("%s=%s shows %s (%s)", variable, root, tree.Dir, tree.Source)
				}
			}
		}
	}
	// Control: a directory with only programs is shown.
	h := Host{Home: me, Variable: func(name string) string { return map[string]string{"GOPATH": me}[name] }}
	if trees, err := h.Find([]string{"go"}); err != nil || len(trees) != 1 || trees[0].Dir != me+"/bin" {
		t.Errorf("Find: got %v, error %v", trees, err)
	}
}

func TestF15CredentialsAreNotShown(t *testing.T) {
	dir := home(t, map[string]string{
		".nvm/versions/node/v20/etc/npmrc": "token", ".nvm/.npmrc": "token", ".nvm/.git/config": "token", ".nvm/nvm.sh": "",
		".nvm/versions/node/v20/lib/node_modules/npm/.npmrc": "", ".nvm/a/.netrc": "token", ".nvm/a/.ssh/known_hosts": "", ".nvm/a/LICENSE": "",
		".nvm/denied/x": "", ".nvm/link": "->/etc/passwd", ".nvm/.env": "token",
	})
	trees, err := (Host{Home: dir}).Find([]string{"nvm"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := trees[0].Credentials(func(path string, isDir bool) bool { return isDir && path == dir+"/.nvm/denied" })
	want := []string{".env", ".git", ".npmrc", "a/.netrc", "a/.ssh", "denied", "versions/node/v20/etc/npmrc"}
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("Credentials: got %v, error %v, want %v", got, err, want)
	}
	// A directory with too many files to be searched is not shown.
	many := map[string]string{}
	for i := range 200 {
		many[".pyenv/d"+string(rune('A'+i%26))+strings.Repeat("x", i/26)+"/"] = ""
	}
	dir = home(t, many)
	trees, err = (Host{Home: dir}).Find([]string{"pyenv"})
	if err != nil {
		t.Fatal(err)
	}
	before := maxScan
	defer func() { maxScan = before }()
	maxScan = 100
	if _, err := trees[0].Credentials(func(string, bool) bool { return false }); fault.CodeOf(err) != "tools_too_large" {
		t.Errorf("Credentials in too many files: got %v, want tools_too_large", err)
	}
}

func TestF15AbsentPrograms(t *testing.T) {
	dir := home(t, map[string]string{
		".pyenv/shims/python3": "x", ".pyenv/shims/pip": "x", ".cargo/bin/cargo": "x", "system/bin/python3": "x", "system/bin/node": "x", "fnm": "->.local/share/fnm/v/bin",
		".local/share/fnm/v/bin/node": "x", ".local/share/fnm/v/bin/npm": "x",
	})
	h := Host{Home: dir}
	path := func(names ...string) (list []string) {
		for _, n := range names {
			list = append(list, filepath.Join(dir, n))
		}
		return list
	}
	got := h.Absent(path(".pyenv/shims", "system/bin", ".cargo/bin", "fnm"), path("system/bin"))
	want := []Program{{"python3", "pyenv", dir + "/system/bin/python3"}, {"pip", "pyenv", ""}, {"npm", "fnm", ""}, {"cargo", "cargo", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("Absent: got %v, want %v", got, want)
	}
	// A program that PATH finds earlier, in a directory that the sandbox sees too, is not missing.
	if got := h.Absent(path("system/bin", ".pyenv/shims"), path("system/bin")); len(got) != 1 || got[0].Name != "pip" {
		t.Errorf("Absent: got %v", got)
	}
	if got := (Host{Home: t.TempDir()}).Absent(path(".pyenv/shims"), nil); got != nil {
		t.Errorf("Absent with another home: got %v", got)
	}
}
