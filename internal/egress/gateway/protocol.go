package gateway

import (
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// version is that of the messages below. A field more is a version more,
// because a peer refuses fields that it does not know.
//
// A process outlives an upgrade of the program that started it, so that two
// versions meet. The rule: the first message each way says which versions its
// sender speaks, from oldest to version, and the highest that both speak is
// spoken. With none in common, or after an upgrade with one, a process that
// holds nothing is asked to retire and a new one is started; one that holds
// sandboxes with a version in common is used on, and one without is left
// alone and its caller refused until its sandboxes are gone. The messages
// hello and retire are the same in all versions.
const (
	oldest  = 1
	version = 4
)

// withLooks is the version from which on an update can say that the sandbox is
// not ready yet.
const withLooks = 2

// withFiles is the version from which on a policy's document has
// filesystem.tracked, tools and read_only.
const withFiles = 3

// withKinds is the version from which on attach names the kind of the attachment. A
// process of before takes every attachment for packets.
const withKinds = 4

// spoken returns the layers of a policy as a process that speaks a version can
// read them. What is left out is about files, which the controller enforces:
// a causeway decides about the network alone.
func spoken(layers []policy.Layer, version int) []policy.Layer {
	if version >= withFiles {
		return layers
	}
	out := slices.Clone(layers)
	for i := range out {
		files := &out[i].Document.Filesystem
		files.Tracked, files.Tools, files.ReadOnly = "", "", nil
	}
	return out
}

// Requests of a controller.
const (
	callHello  = "hello"
	callRetire = "retire"
	callAttach = "attach"
	callUpdate = "update"
	callDetach = "detach"
	callAdopt  = "adopt"
	callList   = "list"
	callWatch  = "watch"
)

// callAsk is the process's question to a controller, callEvent its notice.
const (
	callAsk   = "ask"
	callEvent = "event"
)

// hello opens a connection, the same from both sides. Build tells one
// executable from another.
type hello struct {
	Oldest  int    `json:"oldest"`
	Version int    `json:"version"`
	Build   string `json:"build"`
}

// welcome answers hello. It has room for what later versions add: it is the
// one message whose unknown fields are passed over.
type welcome struct {
	hello
	PID         int            `json:"pid"`
	Attached    int            `json:"attached"`
	Confinement confine.Report `json:"confinement"`
}

// common is the version that both speak, zero if there is none.
func (h hello) common(other hello) int {
	v := min(h.Version, other.Version)
	if v < max(h.Oldest, other.Oldest) {
		return 0
	}
	return v
}

// errVersion refuses a process that speaks another version and is busy.
func errVersion(theirs welcome) error {
	return fault.Newf(fault.Conflict, "causeway_version", "the process %d, of another version, holds the networks of %d sandboxes", theirs.PID, theirs.Attached).
		WithHint("use the version that started them until they have ended, or end them")
}

type attachBody struct {
	Sandbox string          `json:"sandbox"`
	Policy  []policy.Layer  `json:"policy"`
	Secrets []egress.Secret `json:"secrets,omitempty"`
	// Seq is the number of the last record in the file.
	Seq uint64 `json:"seq"`
	// Kind is the attachment's; none is packets.
	Kind egress.AttachmentKind `json:"kind,omitempty"`
}

type attachReply struct {
	Certificate []byte `json:"certificate"` // PEM
	Digest      string `json:"digest"`      // of the policy
}

type updateBody struct {
	Sandbox string          `json:"sandbox"`
	Policy  []policy.Layer  `json:"policy"`
	Secrets []egress.Secret `json:"secrets,omitempty"`
	// Looks says that the sandbox is not ready yet: its first process tries the
	// policy, as after attach.
	Looks bool `json:"looks,omitempty"`
}

type updateReply struct {
	Digest string `json:"digest"`
}

type sandboxBody struct {
	Sandbox string `json:"sandbox"`
}

type adoptBody struct {
	Sandboxes []string `json:"sandboxes"`
}

// adoptReply names those that the process does not hold.
type adoptReply struct {
	Missing []string `json:"missing,omitempty"`
}

type listReply struct {
	Sandboxes []Status `json:"sandboxes"`
}

// askBody is a question. The wait is part of it: the answer must be under way
// before the one who asked stops waiting.
type askBody struct {
	Question egress.Question `json:"question"`
	Wait     time.Duration   `json:"wait_ns"`
}

// Status is one sandbox's link.
type Status struct {
	Sandbox string    `json:"sandbox"`
	Since   time.Time `json:"since"`
	// Controlled says that a controller that is connected gets its questions.
	Controlled  bool   `json:"controlled"`
	Policy      string `json:"policy"` // digest
	Connections int    `json:"connections"`
	// Records is the number of the last one. Refused counts those of
	// decisions to deny.
	Records uint64 `json:"records"`
	Refused uint64 `json:"refused"`
	// Sent and Received are bytes of bodies, as the sandbox sees them.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Uses counts the requests that a secret was set on, by its name.
	Uses map[string]int64 `json:"uses,omitempty"`
}

// Event is something that happened to a sandbox's link.
type Event struct {
	Sandbox string `json:"sandbox"`
	// Kind is attached, updated, adopted or detached.
	Kind string `json:"kind"`
	// Reason is why the process detached the sandbox by itself: it has ended.
	Reason string `json:"reason,omitempty"`
}

// Kinds of events.
const (
	EventAttached = "attached"
	EventUpdated  = "updated"
	EventAdopted  = "adopted"
	EventDetached = "detached"
)
