package identity

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rootAndUser has two accounts with the user ID of root, and one other account.
type rootAndUser struct{}

func (rootAndUser) Lookup(name string) (User, error) {
	switch name {
	case "root", "toor":
		return User{Name: name}, nil
	case "user":
		return User{Name: name, UID: 1000}, nil
	}
	return User{}, &UnknownError{Name: name}
}
func (rootAndUser) UserName(uint32) string  { return "" }
func (rootAndUser) GroupName(uint32) string { return "" }

// NoRoot rejects every account with the user ID 0, whatever its name.
func TestNoRootRejectsUserID0(t *testing.T) {
	for _, name := range []string{"root", "toor"} {
		var unknown *UnknownError
		if _, err := (Accounts{Users: rootAndUser{}, Default: "user", NoRoot: true}).ByName(name); !errors.As(err, &unknown) || unknown.Why == "" {
			t.Errorf("ByName of %s with NoRoot: got %v, want UnknownError with a reason", name, err)
		}
		if u, err := (Accounts{Users: rootAndUser{}, Default: "user"}).ByName(name); err != nil || u.UID != 0 {
			t.Errorf("%s without NoRoot: got %v, %v", name, u, err)
		}
	}
	if u, err := (Accounts{Users: rootAndUser{}, Default: "user", NoRoot: true}).ByName(""); err != nil || u.UID != 1000 {
		t.Errorf("the default user: got %v, %v", u, err)
	}
}

// With OneUser, only names of the default user's ID are accepted. Otherwise the guest, which cannot
// switch users, would run programs as the default user under another name.
func TestOneUserRejectsOtherUsers(t *testing.T) {
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
		t.Fatalf("app without OneUser: %v", err)
	}
	a.OneUser = true
	for name, known := range map[string]bool{"": true, "user": true, "same": true, "app": false, "root": false} {
		if _, err := a.ByName(name); (err == nil) != known || err != nil && !strings.Contains(err.Error(), "as user") {
			t.Errorf("ByName of %q: got %v, want success: %t", name, err, known)
		}
	}
}
