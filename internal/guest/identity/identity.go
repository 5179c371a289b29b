// Package identity owns the user of a request inside the sandbox: it finds the account, resolves
// paths relative to its home, and runs work with exactly its rights.
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
	// Lookup returns *UnknownError if no account has the name.
	Lookup(name string) (User, error)
	// UserName and GroupName return the ID as text if no account has it.
	UserName(uid uint32) string
	GroupName(gid uint32) string
}

// UnknownError is returned for a request with an unknown account.
type UnknownError struct {
	Name string
	Why  string // further text, or ""
}

// Error implements error.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("invalid username: '%s'", e.Name)
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// Accounts determines the user of a request.
type Accounts struct {
	Users
	// Default is the user of requests that name none.
	Default string
	// NoRoot means that no request acts as root.
	NoRoot bool
	// OneUser means that all requests act as the default user.
	OneUser bool
}

// ByName returns the user with this name. "" means the default user.
func (a Accounts) ByName(name string) (User, error) {
	if name == "" {
		name = a.Default
	}
	user, err := a.Lookup(name)
	if err == nil && a.NoRoot && user.UID == 0 {
		return User{}, &UnknownError{Name: name, Why: "the policy or the engine does not allow root"}
	}
	if err == nil && a.OneUser && name != a.Default {
		if only, err := a.Lookup(a.Default); err != nil || only.UID != user.UID {
			return User{}, &UnknownError{Name: name, Why: "the engine runs all programs as " + a.Default}
		}
	}
	return user, err
}

// ByHeader returns the user of HTTP Basic credentials. It ignores the password, because the access
// token was checked before, and ignores other schemes.
func (a Accounts) ByHeader(h http.Header) (User, error) {
	scheme, rest, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return a.ByName("")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
	if err != nil {
		return User{}, &UnknownError{Name: rest}
	}
	// The password is empty, so the last colon ends the name. USER:GROUP has a colon of its own.
	name := string(raw)
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name = name[:i]
	}
	return a.ByName(name)
}
