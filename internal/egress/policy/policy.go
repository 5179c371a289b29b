// Package policy owns the decision whether a sandbox may connect to a host or send a request. It
// parses policy documents and combines them as layers, of which a lower one can only be stricter.
// Decisions need no I/O, so that they can be tested, explained and fuzzed. Package proxy and others
// enforce them.
package policy

import (
	"net/netip"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/packages"
)

// The kinds of layers, from upper to lower. A document of a lower layer cannot loosen an upper one.
const (
	LayerFloor        = "floor" // not configurable, and in no document
	LayerLevel        = "level"
	LayerOrganisation = "organisation"
	LayerProject      = "project"
	LayerTask         = "task"
)

// Layer is a document with its kind.
type Layer struct {
	Kind     string   `json:"kind"`
	Document Document `json:"document"`
}

// Built-in rules, for the packages that enforce them. A connection must have one name from its
// first packet to the last.
const (
	RuleName        = "floor.name"        // not a host name
	RulePath        = "floor.path"        // a path that servers may interpret in more than one way
	RuleMethod      = "floor.method"      // CONNECT inside a connection, TRACE
	RuleAddress     = "floor.address"     // the name resolves to an address that no sandbox may reach
	RulePrivate     = "floor.private"     // a private address without a cidrs entry
	RuleOwn         = "floor.own"         // the host itself, or our API
	RuleProtocol    = "floor.protocol"    // neither TLS nor HTTP where one of them is required
	RulePacket      = "floor.packet"      // neither TCP nor a DNS lookup
	RuleLookup      = "floor.lookup"      // a type of DNS query that only carries data
	RulePlain       = "floor.plain-http"  // HTTP without TLS on port 443
	RuleRecord      = "floor.record"      // no flow entry could be written
	RuleLimit       = "floor.limit"       // too many connections or bytes in total
	RuleSNI         = "identity.sni"      // the TLS name is not the dialled name
	RuleHostHeader  = "identity.host"     // Host or :authority is another name
	RulePort        = "identity.port"     // Host has another port
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
	RuleMinAge    = "packages.min_age"
	RuleInstall   = "packages.allow"    // a package that the list does not name
	RuleForbidden = packages.RuleDenied // a package that the list names
)

// Warning describes something in a policy that is valid but may be a mistake.
type Warning struct {
	Layer string `json:"layer"`
	Field string `json:"field"`
	Text  string `json:"text"`
}

// Limits limit what a rule allows. Zero means no limit of this rule; the sandbox's own still apply.
type Limits struct {
	// Rule is the name under which usage is counted. It can be the rule of an upper layer, so that
	// a lower layer cannot start a new count with a rule of its own.
	Rule        string        `json:"rule,omitempty"`
	Requests    int64         `json:"requests,omitempty"`
	Window      time.Duration `json:"window_ns,omitempty"`
	Bytes       int64         `json:"bytes,omitempty"`
	Connections int           `json:"connections,omitempty"`
}

// Connection is the decision about a connection before its first byte.
type Connection struct {
	// Decision is about the connection as a whole. With Inspect it is Allow if any request could be
	// allowed or asked about, because each request gets its own decision. Otherwise it is final,
	// for bytes that are not inspected. Request decides about plain HTTP in either case.
	egress.Decision
	// Inspect is set if TLS is to be decrypted.
	Inspect bool
	// Tunnel is set if all bytes are forwarded without inspection.
	Tunnel bool
	// Private are the private addresses that the name may resolve to.
	Private      []netip.Prefix
	EncodedSlash bool
	Limits       Limits
	// WebSocket is the effect for requests that open a WebSocket.
	WebSocket egress.Effect
}

// Request is one HTTP request whose identity has been checked.
type Request struct {
	Host   string // canonical, or an address
	Port   int
	Method string
	Path   string // escaped, without the query
	// WebSocket is set on requests that open a WebSocket, TLS on those that arrived over TLS.
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
	// granting is set if a project or a task has network settings. Otherwise the organisation's
	// hosts are allowed, and not only a ceiling.
	granting bool
	installs installs
	settings settings
	export   exports
	top      settings // level and organisation only
	binds    map[endpoint]bool
	remotes  map[string]bool
}

// endpoint is a destination to which a secret is bound.
type endpoint struct {
	host string
	port int
}

// Digest identifies the policy. Policies with the same digest make the same decisions.
func (p *Policy) Digest() string { return p.digest }

// Level returns the name of the level.
func (p *Policy) Level() string { return p.level }

// Layers returns the documents from which the policy was compiled, including the level. Compiling
// them again results in the same digest.
func (p *Policy) Layers() []Layer { return p.layers }

// Document returns the whole policy as one document for display: every setting has its effective
// value, followed by the blocks of all layers. With an organisation's ceiling it is not equivalent
// to its layers.
func (p *Policy) Document() Document { return p.merged }
