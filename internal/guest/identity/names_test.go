package identity_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/identity"
)

// Fixed has only its own accounts, never those of the host.
func TestFixedNames(t *testing.T) {
	f := identity.Fixed{{Name: "user", UID: 1000, GID: 1001}, {Name: "again", UID: 1000, GID: 1001}}
	for got, want := range map[string]string{
		f.UserName(1000): "user", f.GroupName(1001): "user", f.UserName(0): "0", f.GroupName(4294967295): "4294967295",
	} {
		if got != want {
			t.Errorf("name of the account: got %q, want %q", got, want)
		}
	}
	if u, err := f.Lookup("root"); err == nil {
		t.Errorf("Lookup of root: got %+v, want an error", u)
	}
}

func TestSearchPath(t *testing.T) {
	const system = "/usr/local/bin:/usr/bin"
	for home, want := range map[string]string{
		"": system, "/": system,
		"/home/user":  "/home/user/.local/bin:/home/user/go/bin:/home/user/.cargo/bin:" + system,
		"/home/user/": "/home/user/.local/bin:/home/user/go/bin:/home/user/.cargo/bin:" + system,
	} {
		if got := identity.SearchPath(home, system); got != want {
			t.Errorf("home %q: got %q, want %q", home, got, want)
		}
	}
}

func TestResolveRejectsInvalidPaths(t *testing.T) {
	u := identity.User{Home: "/home/user"}
	for name, want := range map[string]error{
		"a\x00b": identity.ErrPathNUL, strings.Repeat("x", 4097): identity.ErrPathLong, strings.Repeat("x", 4096): nil,
	} {
		if _, err := u.Resolve(name, ""); !errors.Is(err, want) {
			t.Errorf("Resolve of %.10q: got %v, want %v", name, err, want)
		}
	}
}

// If root inside has damaged the database, Lookup returns an error, and UserName and GroupName
// return the ID.
func TestDamagedPasswdIsError(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"no group file":         func(dir string) error { return os.Remove(filepath.Join(dir, "group")) },
		"passwd is a directory": func(dir string) error { return replaceByDir(filepath.Join(dir, "passwd")) },
		"group is a directory":  func(dir string) error { return replaceByDir(filepath.Join(dir, "group")) },
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"passwd": "user:x:1000:1000::/home/user:\n", "group": "user:x:1000:\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if u, err := identity.NewPasswd(dir).Lookup("user"); err != nil || u.UID != 1000 {
			t.Fatalf("%s: Lookup before the damage: got %+v %v", name, u, err)
		}
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		users := identity.NewPasswd(dir)
		_, err := users.Lookup("user")
		if _, unknown := errors.AsType[*identity.UnknownError](err); err == nil || unknown {
			t.Errorf("%s: Lookup got %v, want an error other than UnknownError", name, err)
		}
		if users.UserName(1000) != "1000" || users.GroupName(1000) != "1000" {
			t.Errorf("%s: got names %s and %s, want 1000", name, users.UserName(1000), users.GroupName(1000))
		}
	}
}

func replaceByDir(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o755)
}
