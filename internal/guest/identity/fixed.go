package identity

import "strconv"

// Fixed is a fixed list of accounts, for a guest that runs outside of a sandbox and must not use
// the host's user database.
type Fixed []User

// Lookup finds an account by name.
func (f Fixed) Lookup(name string) (User, error) {
	for _, u := range f {
		if u.Name == name {
			return u, nil
		}
	}
	return User{}, &UnknownError{Name: name}
}

// UserName returns the name of the first account with a user ID.
func (f Fixed) UserName(uid uint32) string {
	for _, u := range f {
		if u.UID == uid {
			return u.Name
		}
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// GroupName returns the name of the first account with a group ID.
func (f Fixed) GroupName(gid uint32) string {
	for _, u := range f {
		if u.GID == gid {
			return u.Name
		}
	}
	return strconv.FormatUint(uint64(gid), 10)
}
