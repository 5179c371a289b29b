// Package policy owns the decision: may this sandbox connect to that host,
// may it send that request? It parses policy documents, lays them over each
// other so that a lower layer can only be tighter, and answers without doing
// any I/O, so that every decision can be tested, explained and fuzzed.
// Carrying a decision out is the work of package proxy and its neighbours.
package policy

import (
	"net/netip"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

// The kinds of layers, from the top. A document of a lower layer cannot
// loosen what an upper one says.
const (
	LayerFloor        = "floor" // not configurable, and in no document
	LayerLevel        = "level"
	LayerOrganisation = "organisation"
	LayerProject      = "project"
	LayerTask         = "task"
)

// Layer is a document in its place.
type Layer struct {
	Kind     string   `json:"kind"`
	Document Document `json:"document"`
}

// Rules that are in no document, for the callers that enforce them. The
// identity of a connection is one name from its first packet to the last.
const (
	RuleName        = "floor.name"        // not a host name
	RulePath        = "floor.path"        // a path that servers read in more than one way
	RuleMethod      = "floor.method"      // CONNECT inside a connection, TRACE
	RuleAddress     = "floor.address"     // the name resolves to an address that no sandbox may reach
	RulePrivate     = "floor.private"     // a private address without a cidrs entry
	RuleOwn         = "floor.own"         // the host itself, or our API
	RuleProtocol    = "floor.protocol"    // neither TLS nor HTTP where one of them must be
	RulePacket      = "floor.packet"      // neither TCP nor a look-up of a name
	RuleLookup      = "floor.lookup"      // a type of DNS query that only carries data
	RulePlain       = "floor.plain-http"  // HTTP without TLS on port 443
	RuleRecord      = "floor.record"      // no record could be kept
	RuleLimit       = "floor.limit"       // too many connections or bytes in all
	RuleSNI         = "identity.sni"      // the TLS name is not the name that was dialled
	RuleHostHeader  = "identity.host"     // Host or :authority is another name
	RulePort        = "identity.port"     // Host names another port
	RuleCertificate = "identity.upstream" // the server cannot prove its name
)

// Rules that are settings of a document, not entries in a list.
const (
	RuleUnlisted  = "network.unlisted"
	RuleAddresses = "network.addresses" // an address that no block lists
	RuleWrites    = "network.writes"
	RuleTunnels   = "network.tunnels"
	RuleWebSocket = "network.websocket"
	RuleFetch     = "git.fetch"
	RulePush      = "git.push"
	RulePublish   = "packages.publish"
)

// Warning is something in a policy that is allowed and worth a look.
type Warning struct {
	Layer string `json:"layer"`
	Field string `json:"field"`
	Text  string `json:"text"`
}

// Limits bound what a rule lets through. Zero is no limit of this rule: the
// sandbox's own still hold.
type Limits struct {
	// Rule is the name that all of this is counted under. It can be that of
	// an upper layer's rule, so that a lower layer cannot start a new count
	// with a rule of its own.
	Rule        string        `json:"rule,omitempty"`
	Requests    int64         `json:"requests,omitempty"`
	Window      time.Duration `json:"window_ns,omitempty"`
	Bytes       int64         `json:"bytes,omitempty"`
	Connections int           `json:"connections,omitempty"`
}

// Connection is what a policy says about a connection before its first byte.
type Connection struct {
	// Decision is on the connection as a whole. With Inspect it is Allow
	// where any request could be allowed or asked about, since each request
	// gets its own decision; otherwise it is the last word on bytes that
	// are not inspected. Plain HTTP is judged by Request in any case.
	egress.Decision
	// Inspect says that TLS is to be opened.
	Inspect bool
	// Tunnel says that bytes pass unjudged, whatever they are.
	Tunnel bool
	// Private are the private addresses that the name may resolve to.
	Private      []netip.Prefix
	EncodedSlash bool
	Limits       Limits
	// WebSocket is the effect on requests that become one.
	WebSocket egress.Effect
}

// Request is one HTTP request whose identity has been checked.
type Request struct {
	Host   string // canonical, or an address
	Port   int
	Method string
	Path   string // escaped, without the query
	// WebSocket is set on requests that ask to become one, TLS on those that
	// came over it.
	WebSocket, TLS bool
}

// Policy is a compiled policy. It never changes, and is safe for concurrent
// use.
type Policy struct {
	digest string
	layers []Layer
	merged Document
	level  string

	ceilings []*table // organisation
	grants   []*table // project and task
	// granting says that a project or a task speaks of the network. Only
	// without that are the organisation's hosts more than a ceiling.
	granting bool
	said     settings
	export   exports
	top      settings // level and organisation only
	binds    map[endpoint]bool
	remotes  map[string]bool
}

// endpoint is a place that a secret is bound to.
type endpoint struct {
	host string
	port int
}

// Digest names the policy: two policies with the same digest decide alike.
func (p *Policy) Digest() string { return p.digest }

// Level is the name of the level that governs.
func (p *Policy) Level() string { return p.level }

// Layers are the documents that the policy was compiled from, the level
// among them: compiling them again gives a policy with the same digest.
func (p *Policy) Layers() []Layer { return p.layers }

// Document is the whole policy as one document, for people: every setting
// has the value that counts, and the blocks of all layers follow each other.
// With an organisation's ceiling it is not the same as its layers.
func (p *Policy) Document() Document { return p.merged }
