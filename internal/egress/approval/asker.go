package approval

import "github.com/crannog/crannog/internal/fault"

// FactAsker names who asked, where somebody else than a program inside did: an
// agent that holds a key.
const FactAsker = "asked_by"

// AskerKey is the value of FactAsker for the holder of a key.
func AskerKey(id string) string { return "key:" + id }

// mayGrant refuses a grant by the key that asked: an agent could otherwise
// answer itself with the key that it works with. It may still take its
// question back.
func mayGrant(who Caller, a Approval) error {
	if who.Local || a.Facts[FactAsker] != AskerKey(who.KeyID) {
		return nil
	}
	return fault.New(fault.Denied, "own_question", "the key that asked cannot answer").
		WithHint("the server's user answers, with crannog approve " + a.ID)
}

// Plain reports whether a host is one exact name or IPv4 address, as a policy may
// be made wider by.
func Plain(host string) bool { return plainHost(host) }
