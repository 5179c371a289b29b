// Package egress owns the vocabulary of the only way out of a sandbox: the
// verdicts, the records and the questions that its parts pass to each other.
// The parts themselves are the packages below it.
package egress

import (
	"context"
	"net/netip"
	"time"
)

// Effect is what a policy says about a connection or a request.
type Effect string

// Effects, from the weakest to the strongest: when several rules of one host
// block match, the strongest governs.
const (
	Allow Effect = "allow"
	Ask   Effect = "ask"
	Deny  Effect = "deny"
)

// Decision is a verdict with its reason. The same object is in the record, in
// the body of a refusal, in an approval and in what explain prints.
type Decision struct {
	Effect Effect `json:"effect"`
	// Rule names what decided: "host:api.github.com/read-issues",
	// "network.unlisted", "floor.address", "identity.sni".
	Rule string `json:"rule"`
	// Layer is the layer whose rule it is: floor, level, organisation,
	// project or task.
	Layer string `json:"layer"`
	// Policy is the digest of the policy that was asked.
	Policy string `json:"policy,omitempty"`
	// Reason says in a sentence why, Fix what would allow it, as a flag or a
	// command. Fix is empty where nothing would.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// AttachmentKind names how a sandbox is connected to the gateway.
type AttachmentKind string

// Kinds of attachments.
const (
	None     AttachmentKind = "none"     // loopback and nothing else
	Packets  AttachmentKind = "packets"  // IPv4 packets on a SOCK_SEQPACKET socket, without checksums of TCP
	Tap      AttachmentKind = "tap"      // IPv4 packets of a Linux TUN device, with checksums
	Ethernet AttachmentKind = "ethernet" // Ethernet frames on a Unix socket or of a TAP device, with checksums
	Proxy    AttachmentKind = "proxy"    // CONNECT, HTTP and DNS over streams to a listening Unix socket
)

// Kind is what a record is of.
type Kind string

// Kinds of records.
const (
	KindDNS       Kind = "dns"       // a name was asked for
	KindTCP       Kind = "tcp"       // a connection that never became anything else
	KindTLS       Kind = "tls"       // a connection whose bytes passed unopened
	KindTunnel    Kind = "tunnel"    // a connection of a tunnel rule
	KindConnect   Kind = "connect"   // a CONNECT to our own proxy port
	KindHTTP      Kind = "http"      // one request
	KindWebSocket Kind = "websocket" // a request that became a WebSocket
	KindGit       Kind = "git"       // a push
	KindPublish   Kind = "publish"   // a package was to be published
	KindPacket    Kind = "packet"    // UDP other than names, and all other protocols: dropped
	KindLink      Kind = "link"      // the link opened, closed, or got a new policy
)

// Record is what is left of one flow or request, on every path, also of a
// failed one. It holds no secret and no query: values there are often one.
type Record struct {
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"`
	// Seq numbers the records of one sandbox from 1.
	Seq  uint64 `json:"seq"`
	Kind Kind   `json:"kind"`
	// Begins is set on the first of two records. What lasts, carries a secret
	// or was approved is recorded before it happens, and with the same Time
	// at its end: that one is counted.
	Begins bool   `json:"begins,omitempty"`
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Port   int    `json:"port,omitempty"`
	// Path is the escaped path without its query.
	Path string `json:"path,omitempty"`
	// Address is where the connection really went.
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
	Decision
	// Sent and Received are bytes of bodies, as the sandbox sees them.
	Sent     int64         `json:"sent,omitempty"`
	Received int64         `json:"received,omitempty"`
	Took     time.Duration `json:"took_ns,omitempty"`
	Approval string        `json:"approval,omitempty"`
	// Secrets are the names of those that were set on the request.
	Secrets []string `json:"secrets,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Probe is set on what the sandbox's first process tried, before the
	// sandbox was ready, to see that the policy holds.
	Probe bool `json:"probe,omitempty"`
}

// Recorder keeps records. A record that cannot be kept is an error, and what
// it is of does not happen: there is no action without a record.
type Recorder interface {
	Record(r Record) error
}

// Question is what a person is asked: may this sandbox do this, once?
type Question struct {
	Sandbox string `json:"sandbox"`
	// Kind is one of the approval kinds below.
	Kind    string `json:"kind"`
	Summary string `json:"summary"` // one line, for people
	// Facts are all that the answer is bound to: two questions with equal
	// facts are one question. They hold a body's hash, never a body.
	Facts map[string]string `json:"facts"`
	Rule  string            `json:"rule"`
	// Policy is the digest of the policy that asked.
	Policy string `json:"policy"`
	Quorum int    `json:"quorum,omitempty"` // zero is 1
	Expiry int64  `json:"expiry,omitempty"` // seconds that the question lives; zero is 30 minutes
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

// Answer is what came of a question. A grant is spent by being answered: the
// same question asked again is a new one.
type Answer struct {
	Granted  bool   `json:"granted"`
	Approval string `json:"approval"` // its ID
	// State is approved, pending, denied or expired.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Asker puts questions to people. Ask waits as long as ctx allows; what is
// still open then is an Answer with State pending and no error.
type Asker interface {
	Ask(ctx context.Context, q Question) (Answer, error)
}

// Secret is a sealed value bound to where it may go. The value is set by the
// causeway on verified TLS only, and never reaches the sandbox.
type Secret struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Generation grows with each rotation: an approval is bound to it.
	Generation int64  `json:"generation"`
	Host       string `json:"host"` // exact
	Port       int    `json:"port"` // zero is 443
	Header     string `json:"header"`
	// Format holds {} where the value goes: "Bearer {}". "" is "{}".
	Format string `json:"format"`
	// Basic, if set, is the user name of a Basic credential whose password
	// is the value, as git over HTTPS wants it. Format is ignored then.
	Basic   string    `json:"basic,omitempty"`
	Methods []string  `json:"methods,omitempty"` // none is all
	Paths   []string  `json:"paths,omitempty"`   // globs as in the policy; none is all
	Expires time.Time `json:"expires,omitzero"`  // zero is with the sandbox
	Uses    int64     `json:"uses,omitempty"`    // most uses; zero is the default
	Approve bool      `json:"approve,omitempty"` // each use is asked for
	// Plain values are set and not masked: they are too short, or too much
	// like ordinary text, to be told from it. What a person sealed never is.
	Plain bool `json:"plain,omitempty"`
	// ApproveFirst has a person asked before the first use.
	ApproveFirst bool `json:"approve_first,omitempty"`
	// Old are earlier values, still masked in answers.
	Old []string `json:"old,omitempty"`
}

// CodeNotAttached says of a sandbox that its link is gone, with the process that
// held it: it reaches nothing, and no policy can be put in force.
const CodeNotAttached = "network_not_attached"

// The addresses of every sandbox's link. All sandboxes have the same: a link
// has one sandbox at its end, and nothing is ever routed.
var (
	Box     = netip.MustParsePrefix("10.199.0.2/30")
	Gateway = netip.MustParseAddr("10.199.0.1")
	// Synthetic is where names get their addresses from.
	Synthetic = netip.MustParsePrefix("198.18.0.0/15")
)

const (
	// ProxyPort on the gateway takes CONNECT and absolute-form requests, for
	// programs that insist on a proxy.
	ProxyPort = 3128
	// MTU of the link.
	MTU = 65000
)
