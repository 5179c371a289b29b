package sandbox

import (
	"strconv"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
)

// Principal is the caller of a request. It is always an argument and never a context value, so that
// code that forgets it does not compile.
type Principal struct {
	// KeyID is the ID of the API key. Local callers have none.
	KeyID string
	// Local is true for a caller on this machine that has the user's permissions anyway: the
	// process itself, or a client of the Unix socket that only its user can open. Only a local
	// caller may name host paths, and it sees the sandboxes of all keys.
	Local bool
	// UID is a local caller's user ID, for the audit log. No decision depends on it.
	UID int
	// Session is the web console session of a caller, who is Local too: it sees all sandboxes, but
	// its browser may be on another machine. So it may name no file or variable of this host that a
	// sandbox does not have already.
	Session string
	// Person is the person for whom the session was created, or "".
	Person string
	// Tokenless is set if the caller must not get the tokens of sandboxes. A page in a browser
	// reaches sandboxes through the server, within its session's scope, and a token that it had
	// seen would still work after the session.
	Tokenless bool
}

// Actor returns the name of the caller in the audit log.
func (caller Principal) Actor() string {
	switch {
	case caller.KeyID != "":
		return "key:" + caller.KeyID
	case caller.Session != "":
		return "console:" + caller.Session
	case caller.Local:
		return "local:" + strconv.Itoa(caller.UID)
	}
	return audit.Anonymous
}

// OnHost reports whether a caller acts on this machine as its user, and so may name
// files and variables of the host. A web console session has the user's other
// permissions, but its browser may run on any machine.
func (caller Principal) OnHost() bool { return caller.Local && caller.Session == "" }

// MaySee reports whether a caller may see a sandbox. A warm sandbox in the pool has no owner, and
// is visible to no caller.
func (caller Principal) MaySee(r Row) bool {
	if r.State == Waiting {
		return false
	}
	return caller.Local || caller.KeyID != "" && caller.KeyID == r.Owner
}

// Check rejects a Principal that identifies no caller: one that is neither local nor has a key.
func (caller Principal) Check() error {
	if caller.Local || caller.KeyID != "" {
		return nil
	}
	return fault.New(fault.Unauthenticated, "unauthenticated", "the request names no caller")
}

// MayUse reports whether a caller may see a snapshot.
func (caller Principal) MayUse(n Stored) bool {
	return n.Sum != "" && n.KeptFor == "" && (caller.Local || caller.KeyID != "" && caller.KeyID == n.Owner)
}
