// Package approval owns the approval requests that a sandbox's policy raises: what a request is
// bound to, who may decide it, and that a grant is valid for exactly one action. It does not decide
// when an approval is required, nor what a grant permits.
package approval

import (
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
)

// State is the state of an approval request.
type State string

// The states. Only the first two are open: a pending request waits for people, an approved one for
// the action.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Spent    State = "spent"
	Denied   State = "denied"
	Expired  State = "expired"
)

// States lists every state, for filters and tables.
var States = []State{Pending, Approved, Spent, Denied, Expired}

// Open reports whether a request in this state can still be decided or used.
func (s State) Open() bool { return s == Pending || s == Approved }

// Approval is a stored approval request with its outcome.
type Approval struct {
	ID      string // "a" and 19 of [0-9a-f]
	Sandbox string
	// Owner is the key that owns the sandbox, or "" for a local caller.
	Owner   string
	Kind    string
	Summary string
	Facts   map[string]string
	Rule    string
	Policy  string
	// Digest identifies what a grant is bound to: all fields above except Summary.
	Digest string
	// Quorum is the number of different people who must grant the request, at least 1.
	Quorum int
	State  State
	// Reason is the reason of the last vote, or what else ended the request.
	Reason string
	// Amendment is the "host:port" that the grant added to the sandbox's policy, or "".
	Amendment string
	Votes     []Vote
	Created   time.Time
	// Expires is when the request, or an unused grant, expires.
	Expires time.Time
	Decided time.Time // zero while pending
	Spent   time.Time // zero until the action happened
}

// Vote is the decision of one person.
type Vote struct {
	Who     string // a key's ID, or "local"
	Granted bool
	Reason  string
	At      time.Time
	// Amendment is the "host:port" that the grant adds to the policy, or "".
	Amendment string
}

// Grants returns the number of people who granted the request.
func (a Approval) Grants() int {
	n := 0
	for _, v := range a.Votes {
		if v.Granted {
			n++
		}
	}
	return n
}

// Caller is a caller who reads and decides requests: the holder of an API key, or the machine's
// user. The tokens of a sandbox do not make a Caller, so that a program cannot approve its own
// request.
type Caller struct {
	KeyID string
	Local bool
	// Person names a local caller who is signed in to the web console by a link with this name. The
	// user who creates links for two people is responsible for giving them to two people. Without a
	// name the caller is the machine's user.
	Person string
}

// LocalName is the name of a local caller in a vote. No key has this ID.
const LocalName = "local"

// ConsolePrefix precedes the name of a person who is signed in to the web console, in a vote. No
// key has such an ID.
const ConsolePrefix = "console:"

func (c Caller) name() string {
	switch {
	case !c.Local:
		return c.KeyID
	case c.Person != "":
		return ConsolePrefix + c.Person
	}
	return LocalName
}

// maySee reports whether the caller may see a request: the machine's user sees all requests, a key
// those of its own sandboxes. The zero Caller sees nothing, although sandboxes of local callers
// have the owner "".
func (c Caller) maySee(a Approval) bool {
	return c.Local || c.KeyID != "" && c.KeyID == a.Owner
}

// Event is one change of one approval.
type Event struct {
	// Seq numbers the events of a store in ascending order. It is zero for events from which a
	// watch cannot resume.
	Seq int64
	// Type is the new state of the request, or EventVote.
	Type string
	// Approval is the request when the event is read, possibly after later events.
	Approval Approval
}

// EventVote is the type of an event that did not change the state.
const EventVote = "vote"

// kinds are the kinds of requests.
var kinds = []string{
	egress.AskHost, egress.AskRequest, egress.AskPublish, egress.AskPush,
	egress.AskSecret, egress.AskWiden, egress.AskExport, egress.AskDelete,
}

// Limits of a request. A program inside controls many of the facts, which are stored, sent and
// displayed.
const (
	maxFacts    = 64
	maxName     = 64
	maxFactName = 128      // a secret's name with its prefix
	maxText     = 512      // summary and rule, and the reason of a vote
	maxFactsSz  = 32 << 10 // names and values together
	maxQuorum   = 16
	maxExpiry   = 24 * time.Hour
)

const factLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-"

// check rejects a request that is too large for a person to judge. If it were truncated instead, a
// grant would cover facts that were never displayed.
func check(q egress.ApprovalRequest) error {
	size := 0
	for name, value := range q.Facts {
		size += len(name) + len(value)
		// Names that look alike when displayed could be confused.
		if name == "" || len(name) > maxFactName || strings.Trim(name, factLetters) != "" {
			return badRequest("a fact's name is not 1 to 128 letters, digits and .:_-")
		}
	}
	switch {
	case q.Sandbox == "":
		return badRequest("it names no sandbox")
	case !slices.Contains(kinds, q.Kind):
		return badRequest("its kind is unknown")
	case q.Rule == "" || len(q.Rule) > maxText:
		return badRequest("its rule is missing or too long")
	case q.Policy == "" || len(q.Policy) > maxText:
		return badRequest("its policy's digest is missing or too long")
	case len(q.Facts) == 0 || len(q.Facts) > maxFacts || size > maxFactsSz:
		return badRequest("its facts are missing or too many")
	case q.Quorum < 0 || q.Quorum > maxQuorum:
		return badRequest("its quorum is out of range")
	case q.Expiry < 0 || q.Expiry > int64(maxExpiry/time.Second):
		return badRequest("its expiry is out of range")
	}
	return nil
}

func badRequest(why string) error {
	return fault.New(fault.Invalid, "question_invalid", "this request cannot be decided by people: "+why)
}

// Unknown returns the error for a request that does not exist or belongs to another owner, so that
// no caller learns of another owner's requests.
func Unknown(id string) error {
	return fault.Newf(fault.NotFound, "approval_not_found", "there is no approval %q", text.Strict(id, maxName)).
		WithHint("crannog approvals lists what waits for an answer")
}
