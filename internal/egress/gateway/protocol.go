package gateway

import (
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/packages/store"
)

// version is the version of the messages below. A new field needs a new version, because a peer
// rejects unknown fields. The gateway process outlives an upgrade of the program that started it, so
// two versions may meet. The first message in each direction states which versions its sender
// supports, from oldest to version. Both sides use the highest common one. A process without
// sandboxes is replaced if there is no common version or the program was upgraded. A process with
// sandboxes stays; without a common version, the client gets an error until those sandboxes have
// ended. The messages hello and retire are the same in all versions.
const (
	oldest  = 1
	version = 8
)

// withProbes is the first version in which an update can announce a readiness probe.
const withProbes = 2

// withFiles is the first version in which a policy's document has filesystem.tracked, tools and
// read_only.
const withFiles = 3

// withKinds is the first version in which attach has the kind of the attachment. Earlier versions
// treat every attachment as packets.
const withKinds = 4

// withPackages is the first version in which a policy's document has settings for the package
// cache, and in which the gateway asks its controller to store what it fetched.
const withPackages = 5

// withEcosystems is the first version in which the package cache knows more ecosystems than npm,
// and in which packages has unverified and undated.
const withEcosystems = 6

// withImages is the first version in which the package cache knows registries of images.
const withImages = 7

// withAdvisories is the first version in which packages has advisories and accepted.
const withAdvisories = 7

// withLockfiles is the first version in which packages has lockfile_only and unlocked, and in which
// attach has the set of the workspace's lockfiles.
const withLockfiles = 7

// withContent is the first version in which packages has content and tolerated.
const withContent = 7

// withContainers is the first version in which a policy's document has isolation.containers.
const withContainers = 8

// withScan is the first version in which packages has scan and advisories_max_age, and in which the
// gateway asks its controller to examine files.
const withScan = 8

// checkSupported rejects a policy with gateway settings that do not exist in a version. Without them
// the gateway would allow what the policy forbids.
func checkSupported(layers []policy.Layer, version int) error {
	for _, l := range layers {
		p := l.Document.Packages
		if version < withPackages && p.Installs() || version < withEcosystems && p.BeyondNPM() || version < withImages && p.Images() ||
			version < withAdvisories && p.Advises() || version < withLockfiles && p.Locks() || version < withContent && p.Inspects() ||
			version < withScan && (p.Scans() || p.AdvisoriesMaxAge > 0) {
			return fault.New(fault.Conflict, "causeway_version", "the process that holds the sandboxes' networks is of an earlier version, which lacks settings of packages in this policy").
				WithHint("end the sandboxes that it holds, and try again")
		}
	}
	return nil
}

// layersForVersion returns the layers of a policy without fields that do not exist in a version.
// The omitted fields are about files and containers, which the controller enforces. The gateway
// decides only about the network.
func layersForVersion(layers []policy.Layer, version int) []policy.Layer {
	if version >= withContainers {
		return layers
	}
	out := slices.Clone(layers)
	for i := range out {
		out[i].Document.Isolation.Containers = ""
		if version >= withFiles {
			continue
		}
		files := &out[i].Document.Filesystem
		files.Tracked, files.Tools, files.ReadOnly = "", "", nil
	}
	return out
}

// Requests from a controller.
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

// Requests from the process to a controller. callAsk requests an approval, and callEvent reports an
// Event.
const (
	callAsk   = "ask"
	callEvent = "event"
	// callKeep asks the controller to store a package. The content is sent as a file.
	callKeep = "keep"
	// callExamine asks the controller to inspect or scan a package. The content is sent as a file.
	callExamine = "examine"
)

// hello is the first message from a controller. The answer, welcome, contains it too. Build
// identifies an executable.
type hello struct {
	Oldest  int    `json:"oldest"`
	Version int    `json:"version"`
	Build   string `json:"build"`
}

// welcome is the answer to hello. It is the only message in which unknown fields are ignored, so
// that later versions can add some.
type welcome struct {
	hello
	PID         int            `json:"pid"`
	Attached    int            `json:"attached"`
	Confinement confine.Report `json:"confinement"`
}

// common returns the highest version that both sides support, or zero.
func (h hello) common(other hello) int {
	v := min(h.Version, other.Version)
	if v < max(h.Oldest, other.Oldest) {
		return 0
	}
	return v
}

// errVersion returns the error for a process that holds sandboxes and has no version in common with
// this program.
func errVersion(other welcome) error {
	return fault.Newf(fault.Conflict, "causeway_version", "the process %d, of another version, holds the networks of %d sandboxes", other.PID, other.Attached).
		WithHint("use the version that started them until they have ended, or end them")
}

type attachBody struct {
	Sandbox string          `json:"sandbox"`
	Policy  []policy.Layer  `json:"policy"`
	Secrets []egress.Secret `json:"secrets,omitempty"`
	// Seq is the number of the last entry in the flow file.
	Seq uint64 `json:"seq"`
	// Kind is the attachment's kind. "" means packets.
	Kind egress.AttachmentKind `json:"kind,omitempty"`
	// Locked is what the lockfiles of the sandbox's workspace name. An update cannot change it.
	Locked *lockfile.Set `json:"locked,omitempty"`
}

type attachReply struct {
	Certificate []byte `json:"certificate"` // PEM
	Digest      string `json:"digest"`      // of the policy
}

type updateBody struct {
	Sandbox string          `json:"sandbox"`
	Policy  []policy.Layer  `json:"policy"`
	Secrets []egress.Secret `json:"secrets,omitempty"`
	// RunsProbe announces that the sandbox's first process runs the readiness probe, as after
	// attach.
	RunsProbe bool `json:"looks,omitempty"`
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

// adoptReply lists the sandboxes that the process does not hold.
type adoptReply struct {
	Missing []string `json:"missing,omitempty"`
}

type listReply struct {
	Sandboxes []Status `json:"sandboxes"`
}

// askBody is an approval request. It includes the wait, because the answer must arrive before the
// requester stops waiting.
type askBody struct {
	Question egress.ApprovalRequest `json:"question"`
	Wait     time.Duration          `json:"wait_ns"`
}

// keepBody is a package to store. A controller stores packages only for its own sandboxes.
type keepBody struct {
	Sandbox string      `json:"sandbox"`
	Entry   store.Entry `json:"entry"`
}

// examineBody is a package to examine. A controller examines packages only for its own sandboxes.
type examineBody struct {
	Sandbox string          `json:"sandbox"`
	Request examine.Request `json:"request"`
}

// Status is the state of one sandbox's attachment.
type Status struct {
	Sandbox string    `json:"sandbox"`
	Since   time.Time `json:"since"`
	// Controlled reports whether a connected controller receives its approval requests.
	Controlled  bool   `json:"controlled"`
	Policy      string `json:"policy"` // digest
	Connections int    `json:"connections"`
	// Records is the number of the last flow entry. Refused counts the entries of denials.
	Records uint64 `json:"records"`
	Refused uint64 `json:"refused"`
	// Sent and Received are bytes of bodies, as the sandbox sees them.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Uses counts the requests that carried a secret, by its name.
	Uses map[string]int64 `json:"uses,omitempty"`
}

// Event is an event of a sandbox's attachment.
type Event struct {
	Sandbox string `json:"sandbox"`
	// Kind is attached, updated, adopted or detached.
	Kind string `json:"kind"`
	// Reason is why the process itself detached the sandbox, if it did.
	Reason string `json:"reason,omitempty"`
}

// Kinds of events.
const (
	EventAttached = "attached"
	EventUpdated  = "updated"
	EventAdopted  = "adopted"
	EventDetached = "detached"
)
