package identity

import (
	"errors"
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
func TestNobodyIsRootWhereThePolicySaysSo(t *testing.T) {
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
