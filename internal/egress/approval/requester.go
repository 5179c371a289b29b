package approval

import "github.com/crannog/crannog/internal/fault"

// FactRequester is the name of the fact that identifies the requester. It is set if an agent with
// an API key made the request, instead of a program inside the sandbox.
const FactRequester = "asked_by"

// RequesterKey is the value of FactRequester for the holder of a key.
func RequesterKey(id string) string { return "key:" + id }

// mayGrant rejects a grant by the key that made the request. Otherwise an agent could approve its
// own request with the key that it works with. It may still deny its request.
func mayGrant(caller Caller, a Approval) error {
	if caller.Local || a.Facts[FactRequester] != RequesterKey(caller.KeyID) {
		return nil
	}
	return fault.New(fault.Denied, "own_question", "the key that asked cannot decide").
		WithHint("the server's user decides, with crannog approve " + a.ID)
}

// Plain reports whether a host is one exact name or IPv4 address, which a grant may add to a
// policy.
func Plain(host string) bool { return plainHost(host) }
