// Package egress owns the vocabulary of the egress gateway: the verdicts, flow entries and approval
// requests that its parts exchange. The parts themselves are the packages below it.
package egress

import (
	"context"
	"net/netip"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// Effect is a policy's decision about a connection or a request.
type Effect string

// Effects, from the weakest to the strictest. If several rules of one host block match, the
// strictest applies.
const (
	Allow Effect = "allow"
	Ask   Effect = "ask"
	Deny  Effect = "deny"
)

// Decision is a verdict with its reason. It appears in the audit log, in the body of a denial, in
// an approval request and in the output of explain.
type Decision struct {
	Effect Effect `json:"effect"`
	// Rule names the rule that decided: "host:api.github.com/read-issues", "network.unlisted",
	// "floor.address", "identity.sni".
	Rule string `json:"rule"`
	// Layer is the layer of that rule: floor, level, organisation, project or task.
	Layer string `json:"layer"`
	// Policy is the digest of the policy that decided.
	Policy string `json:"policy,omitempty"`
	// Reason explains the decision in a sentence. Fix is a flag or a command that would allow the
	// action, or "" if there is none.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// AttachmentKind is how a sandbox is connected to the gateway.
type AttachmentKind string

// Kinds of attachments.
const (
	None     AttachmentKind = "none"     // loopback and nothing else
	Packets  AttachmentKind = "packets"  // IPv4 packets on a SOCK_SEQPACKET socket, without checksums of TCP
	Tap      AttachmentKind = "tap"      // IPv4 packets of a Linux TUN device, with checksums
	Ethernet AttachmentKind = "ethernet" // Ethernet frames on a Unix socket or of a TAP device, with checksums
	Proxy    AttachmentKind = "proxy"    // CONNECT, HTTP and DNS over streams to a listening Unix socket
)

// MadeByEngine reports whether the engine makes both ends of an attachment of the kind.
func (k AttachmentKind) MadeByEngine() bool { return k == Tap || k == Proxy }

// NotCarried lists what programs cannot send over an attachment of the kind, whatever the policy
// allows.
func (k AttachmentKind) NotCarried() []string {
	switch k {
	case Packets, Tap, Ethernet:
		return []string{"UDP other than DNS", "ICMP and other protocols than TCP", "IPv6"}
	case Proxy:
		return []string{
			"connections of programs that ignore HTTP_PROXY, HTTPS_PROXY and ALL_PROXY", "UDP other than DNS", "raw sockets, ICMP and other protocols than TCP", "IPv6",
		}
	case None:
	}
	return nil
}

// Kind is the kind of a flow entry.
type Kind string

// Kinds of flow entries.
const (
	KindDNS       Kind = "dns"       // a DNS lookup
	KindTCP       Kind = "tcp"       // a connection that never became anything else
	KindTLS       Kind = "tls"       // a connection whose bytes were passed on without being decrypted
	KindTunnel    Kind = "tunnel"    // a connection of a tunnel rule
	KindConnect   Kind = "connect"   // a CONNECT to our own proxy port
	KindHTTP      Kind = "http"      // one request
	KindWebSocket Kind = "websocket" // a request that became a WebSocket
	KindGit       Kind = "git"       // a git push
	KindPublish   Kind = "publish"   // an attempt to publish a package
	KindPacket    Kind = "packet"    // UDP other than DNS, and all other protocols: dropped
	KindLink      Kind = "link"      // the attachment opened, closed, or got a new policy
)

// Record describes one flow or request, including failed ones. It contains no secret and no query
// string, because values in query strings are often secrets.
type Record struct {
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"`
	// Seq numbers the records of one sandbox from 1.
	Seq  uint64 `json:"seq"`
	Kind Kind   `json:"kind"`
	// Begins is set on the first of two entries. An action that lasts, carries a secret or was
	// approved is logged before it happens, and again with the same Time at its end. The second
	// entry is the final one.
	Begins bool   `json:"begins,omitempty"`
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Port   int    `json:"port,omitempty"`
	// Path is the escaped path without its query.
	Path string `json:"path,omitempty"`
	// Address is the address to which the connection was made.
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
	Decision
	// Sent and Received are bytes of bodies, as the sandbox sees them.
	Sent     int64         `json:"sent,omitempty"`
	Received int64         `json:"received,omitempty"`
	Took     time.Duration `json:"took_ns,omitempty"`
	Approval string        `json:"approval,omitempty"`
	// Secrets are the names of the secrets that were set on the request.
	Secrets []string `json:"secrets,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Package is set if the package cache answered.
	Package *packages.Fact `json:"package,omitempty"`
	// Probe is set on the connections of the readiness probe, which the sandbox's first process
	// runs before the sandbox is ready.
	Probe bool `json:"probe,omitempty"`
}

// Recorder writes flow entries. If an entry cannot be written, its action does not happen.
type Recorder interface {
	Record(r Record) error
}

// ApprovalRequest requests a person's approval for a single action of a sandbox.
type ApprovalRequest struct {
	Sandbox string `json:"sandbox"`
	// Kind is one of the approval kinds below.
	Kind    string `json:"kind"`
	Summary string `json:"summary"` // one line, for people
	// Facts contain everything that the decision is bound to. Two requests with equal facts are the
	// same request. They contain the hash of a body, never the body.
	Facts map[string]string `json:"facts"`
	Rule  string            `json:"rule"`
	// Policy is the digest of the policy that requires the approval.
	Policy string `json:"policy"`
	Quorum int    `json:"quorum,omitempty"` // zero is 1
	Expiry int64  `json:"expiry,omitempty"` // lifetime of the request in seconds; zero is 30 minutes
}

// Kinds of approvals.
const (
	AskHost    = "net.host"
	AskRequest = "net.request"
	AskPublish = "pkg.publish"
	AskPush    = "git.push"
	AskSecret  = "secret.use"
	AskWiden   = "policy.widen"
	AskExport  = "fs.export"
	AskDelete  = "fs.delete"
)

// ApprovalOutcome is the outcome of an approval request. A grant is used up by it: the same action
// later needs a new approval.
type ApprovalOutcome struct {
	Granted  bool   `json:"granted"`
	Approval string `json:"approval"` // its ID
	// State is approved, pending, denied or expired.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Approver requests approval from people. Ask waits until ctx ends. If there is no decision by
// then, it returns an outcome with State pending and no error.
type Approver interface {
	Ask(ctx context.Context, q ApprovalRequest) (ApprovalOutcome, error)
}

// Secret is a sealed value that is bound to destinations. The gateway sets the value only on
// verified TLS connections, and it never reaches the sandbox.
type Secret struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Generation increases with each rotation. An approval is bound to it.
	Generation int64  `json:"generation"`
	Host       string `json:"host"` // exact
	Port       int    `json:"port"` // zero is 443
	Header     string `json:"header"`
	// Format has {} in place of the value, as in "Bearer {}". "" means "{}".
	Format string `json:"format"`
	// Basic, if set, is the user name of a Basic credential with the value as its password, as git
	// over HTTPS needs it. Format is ignored then.
	Basic   string    `json:"basic,omitempty"`
	Methods []string  `json:"methods,omitempty"` // empty is all
	Paths   []string  `json:"paths,omitempty"`   // globs as in the policy; empty is all
	Expires time.Time `json:"expires,omitzero"`  // zero is the end of the sandbox
	Uses    int64     `json:"uses,omitempty"`    // greatest number of uses; zero is the default
	Approve bool      `json:"approve,omitempty"` // each use needs an approval
	// Plain values are set but not redacted, because they are too short or too similar to ordinary
	// text. A value that a person sealed is never plain.
	Plain bool `json:"plain,omitempty"`
	// ApproveFirst requires an approval before the first use.
	ApproveFirst bool `json:"approve_first,omitempty"`
	// Old are earlier values, which are still redacted in responses.
	Old []string `json:"old,omitempty"`
}

// CodeNotAttached is the error code for a sandbox whose attachment has ended with its process. The
// sandbox has no network, and its policy cannot be changed.
const CodeNotAttached = "network_not_attached"

// The addresses of every attachment. All sandboxes have the same ones, because an attachment has
// one sandbox at its end, and nothing is routed between attachments.
var (
	SandboxPrefix = netip.MustParsePrefix("10.199.0.2/30")
	Gateway       = netip.MustParseAddr("10.199.0.1")
	// Synthetic is the range of the addresses that DNS answers contain.
	Synthetic = netip.MustParsePrefix("198.18.0.0/15")
)

const (
	// ProxyPort is the gateway's port for CONNECT and absolute-form requests, for programs that
	// require a proxy.
	ProxyPort = 3128
	// MTU is the maximum packet size of an attachment.
	MTU = 65000
)
