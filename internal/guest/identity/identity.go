// Package identity owns who inside the sandbox a request acts as: it looks
// users up, resolves paths from their point of view, and does work with
// exactly their rights.
package identity

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// User is an account of the sandbox.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups, without GID
	Home   string
}

// Users finds accounts. It is safe for concurrent use.
type Users interface {
	// Lookup returns *UnknownError for a name that is no account.
	Lookup(name string) (User, error)
	// UserName and GroupName return the number as text where no account has it.
	UserName(uid uint32) string
	GroupName(gid uint32) string
}

// UnknownError says that a request names no account.
type UnknownError struct {
	Name string
	Why  string // what else is to say, or ""
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("invalid username: '%s'", e.Name)
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// Accounts answers which user a request acts as.
type Accounts struct {
	Users
	// Default is the user where a request names none.
	Default string
	// NoRoot says that no request acts as the superuser.
	NoRoot bool
}

// ByName looks a name up; "" is the default user.
func (a Accounts) ByName(name string) (User, error) {
	if name == "" {
		name = a.Default
	}
	user, err := a.Lookup(name)
	if err == nil && a.NoRoot && user.UID == 0 {
		return User{}, &UnknownError{Name: name, Why: "the policy forbids to be root"}
	}
	return user, err
}

// ByHeader reads the user from HTTP Basic credentials, whose password means
// nothing: the access token was checked before. Other schemes name no user.
func (a Accounts) ByHeader(h http.Header) (User, error) {
	scheme, rest, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return a.ByName("")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
	if err != nil {
		return User{}, &UnknownError{Name: rest}
	}
	name, _, _ := strings.Cut(string(raw), ":")
	return a.ByName(name)
}
