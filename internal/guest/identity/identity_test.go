package identity_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/identity"
)

func TestPasswdLookup(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, at time.Time) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	users := identity.NewPasswd(dir)
	if _, err := users.Lookup("root"); err == nil {
		t.Error("Lookup without files found a user")
	}
	write("passwd", "root:x:0:0:root:/root:/bin/bash\n# comment\nbad:x:minus:0::/:\nuser:x:1000:1001::/home/user:/bin/bash\nuser:x:0:0::/:\nshort:x\n", time.Unix(100, 0))
	write("group", "root:x:0:\nstaff:x:50:user,root\nusers:x:1001:user\nbad:x:y:user\ntwice:x:51:user,user\n", time.Unix(100, 0))
	u, err := users.Lookup("user")
	if err != nil || u.UID != 1000 || u.GID != 1001 || u.Home != "/home/user" || !slices.Equal(u.Groups, []uint32{50, 51}) {
		t.Errorf("Lookup: got %+v, %v, want the account of user", u, err)
	}
	for _, name := range []string{"bad", "short", "mallory", "", "# comment", "root:x"} {
		_, err := users.Lookup(name)
		if unknown, ok := errors.AsType[*identity.UnknownError](err); !ok || unknown.Error() != "invalid username: '"+name+"'" {
			t.Errorf("Lookup of %q: got %v, want UnknownError", name, err)
		}
	}
	for name, want := range map[string]identity.User{
		"1000": {Name: "user", UID: 1000, GID: 1001, Groups: []uint32{50, 51}, Home: "/home/user"}, "user:staff": {Name: "user", UID: 1000, GID: 50, Home: "/home/user"},
		"7": {Name: "7", UID: 7, Home: "/"}, "7:9": {Name: "7", UID: 7, GID: 9, Home: "/"}, "0:0": {Name: "root", Home: "/root"},
	} {
		if u, err := users.Lookup(name); err != nil || !reflect.DeepEqual(u, want) {
			t.Errorf("Lookup of %q: got %+v, %v, want %+v", name, u, err, want)
		}
	}
	for _, name := range []string{"-1", "4294967296", "user:no such", "7:", ":7"} {
		if u, err := users.Lookup(name); err == nil {
			t.Errorf("Lookup of %q: got %+v, want an error", name, u)
		}
	}
	if users.UserName(1000) != "user" || users.UserName(7) != "7" || users.GroupName(50) != "staff" || users.GroupName(9) != "9" {
		t.Error("UserName or GroupName returned a wrong name")
	}
	write("passwd", "later:x:7:7::/:\n", time.Unix(200, 0))
	if _, err := users.Lookup("later"); err != nil {
		t.Errorf("Lookup of a user that was added later: %v", err)
	}
	if _, err := users.Lookup("user"); err == nil {
		t.Error("a removed user is still found")
	}
}

func TestByHeader(t *testing.T) {
	a := identity.Accounts{Users: identity.Fixed{{Name: "user", UID: 1}, {Name: "root"}, {Name: "user:staff", UID: 1, GID: 50}}, Default: "user"}
	for header, want := range map[string]string{
		"Basic dXNlcjpzdGFmZjo=": "user:staff", "": "user", "Bearer abc": "user", "Basic cm9vdDo=": "root", "basic cm9vdDo=": "root", "Basic cm9vdA==": "root", "Basic Og==": "user",
		"Basic cm9vdDpwYXNz": "root", "Basic bWFsbG9yeTo=": "", "Basic %%%": "", "Basic cm9vdAA6": "",
	} {
		u, err := a.ByHeader(http.Header{"Authorization": {header}})
		if u.Name != want || (err == nil) != (want != "") {
			t.Errorf("user of the header %q: got %v, %v, want %q", header, u, err, want)
		}
	}
}

func TestResolve(t *testing.T) {
	u := identity.User{Home: "/home/user"}
	for _, c := range []struct{ path, fallback, want string }{
		{"", "", "/home/user"}, {"", "/work", "/work"}, {"", "~/sub", "/home/user/sub"}, {"x", "/work", "/home/user/x"},
		{"~", "/work", "/home/user"}, {"~/", "", "/home/user"}, {"~/a/../b", "", "/home/user/b"}, {"~x", "", "/home/user/~x"},
		{"/a//b/./c/..", "", "/a/b"}, {"../../..", "", "/"}, {"/../..", "", "/"}, {".", "", "/home/user"},
	} {
		if got, err := u.Resolve(c.path, c.fallback); got != c.want || err != nil {
			t.Errorf("Resolve of %q with the default %q: got %q, %v, want %q", c.path, c.fallback, got, err, c.want)
		}
	}
	if got, err := (identity.User{}).Resolve("", ""); got != "/" || err != nil {
		t.Errorf("Resolve without a home: got %q, %v, want /", got, err)
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "~", "~/../x", "/a/../../b", "a\x00b", "././.", "//", "~~", "\xff"} {
		f.Add(s, "/home/user", "/work")
		f.Add(s, "", "")
	}
	f.Fuzz(func(t *testing.T, path, home, fallback string) {
		got, err := identity.User{Home: home}.Resolve(path, fallback)
		if err != nil {
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got {
			t.Errorf("%q resolved from %q: got %q, which is not a clean absolute path", path, home, got)
		}
	})
}
