package identity

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type pair struct{}

func (pair) Lookup(name string) (User, error) {
	switch name {
	case "root", "toor":
		return User{Name: name}, nil
	case "user":
		return User{Name: name, UID: 1000}, nil
	}
	return User{}, &UnknownError{Name: name}
}
func (pair) UserName(uint32) string  { return "" }
func (pair) GroupName(uint32) string { return "" }

// The number makes a user root, not the name.
func TestNoRoot(t *testing.T) {
	for _, name := range []string{"root", "toor"} {
		var unknown *UnknownError
		if _, err := (Accounts{Users: pair{}, Default: "user", NoRoot: true}).ByName(name); !errors.As(err, &unknown) || unknown.Why == "" {
			t.Errorf("%s: got %v", name, err)
		}
		if u, err := (Accounts{Users: pair{}, Default: "user"}).ByName(name); err != nil || u.UID != 0 {
			t.Errorf("%s without the rule: got %v, %v", name, u, err)
		}
	}
	if u, err := (Accounts{Users: pair{}, Default: "user", NoRoot: true}).ByName(""); err != nil || u.UID != 1000 {
		t.Errorf("the default user: got %v, %v", u, err)
	}
}

// A guest that cannot become another user must not run programs as itself under another's name.
func TestOneUserIsTheDefault(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\nsame:x:1000:1000::/srv:/bin/sh\napp:x:70:71::/srv:/bin/sh\n",
		"group":  "root:x:0:\nuser:x:1000:\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := Accounts{Users: NewPasswd(dir), Default: "user"}
	if _, err := a.ByName("app"); err != nil {
		t.Fatalf("control: %v", err)
	}
	a.OneUser = true
	for name, known := range map[string]bool{"": true, "user": true, "same": true, "app": false, "root": false} {
		if _, err := a.ByName(name); (err == nil) != known || err != nil && !strings.Contains(err.Error(), "as user") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
