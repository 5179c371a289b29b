package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/packages/store"
)

// Options configure a connection. The zero value is valid, and approves nothing.
type Options struct {
	// Asker decides approval requests of the sandboxes that this client has attached or adopted.
	Asker egress.Approver
	Log   *slog.Logger
	// Program is the executable with Roles. The default is this program.
	Program string
	// Start starts the process, for example in a control group. The default is the command's own
	// Start.
	Start func(*exec.Cmd) error
	// Packages stores the packages that the gateway has fetched. Nil stores none.
	Packages PackageStore
	// Examiner inspects and scans what the gateway has fetched. Nil does neither.
	Examiner Examiner
	// Event is called for the events of all attachments, in order.
	Event func(Event)
}

// PackageStore stores packages. store.Store is one.
type PackageStore interface {
	Put(e store.Entry, content io.Reader) error
}

// Examiner examines packages. examine.Examiner is one.
type Examiner interface {
	Examine(ctx context.Context, r examine.Request, file io.ReaderAt) (examine.Answer, error)
}

func (o Options) program() string {
	if o.Program == "" {
		return self
	}
	return o.Program
}

// Client controls the gateway process of one state directory. It is safe for concurrent use. It
// does not reconnect: after Done, call Connect again.
type Client struct {
	peer     *peer
	approver egress.Approver
	packages PackageStore
	examiner Examiner
	info     Info
	version  int // the protocol version in use
	events   *queue

	mu         sync.Mutex
	controlled map[string]bool // sandboxes whose approval requests this client decides
}

// Info describes the process, for display.
type Info struct {
	PID         int
	Build       string
	Confinement confine.Report
}

// Attachment is a request to connect a sandbox.
type Attachment struct {
	Sandbox string
	Policy  []policy.Layer
	Secrets []egress.Secret
	// Kind is the kind of attachment. "" means packets.
	Kind egress.AttachmentKind
	// Link is the gateway's end of a kind that is created in the sandbox, such as a Tap or a Proxy.
	// The caller keeps it open and must close it: the device or socket disappears with its last
	// descriptor. The gateway holds a duplicate until Detach, which the caller must call when the
	// sandbox has ended, because the TUN device of a Tap would keep its network namespace alive. If
	// Link is nil, Attach creates both ends, of Packets or of Ethernet.
	Link *os.File
	// Locked is what the lockfiles of the sandbox's workspace name. Nil is nothing.
	Locked *lockfile.Set
	// Record is a regular file to which flow entries are appended. The caller keeps it open.
	Record *os.File
}

// errAbsent is returned if no gateway process runs.
var errAbsent = errors.New("there is no process")

// Connect connects to the gateway process of a state directory. If there is none, Connect starts
// one.
func Connect(ctx context.Context, stateDir string, o Options) (*Client, error) {
	if o.Program == "" && !reexec.Dispatched() {
		return nil, fault.New(fault.Internal, "not_dispatched", "this program cannot start itself as "+Arg0).
			WithHint("call crannog.Main first thing in main")
	}
	dir, err := openDir(stateDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	build, err := buildOf(o.program())
	if err != nil {
		return nil, err
	}
	about := hello{Oldest: oldest, Version: version, Build: build}
	return connect(ctx, dir, o, about)
}

func connect(ctx context.Context, dir *os.File, o Options, about hello) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started := false
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		// A process that was just started is not asked to exit, because two programs could replace
		// each other's process for ever.
		c, err := dial(ctx, dir, o, about, !started)
		if !errors.Is(err, errAbsent) {
			return c, err
		}
		justStarted, err := startIfNone(ctx, dir, o)
		if err != nil {
			return nil, err
		}
		started = started || justStarted
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fault.Wrap(ctx.Err(), fault.Unavailable, "causeway_not_started", "the process that holds the sandboxes' networks does not answer")
		}
	}
}

// dial connects to a process and negotiates the version. With replace, it asks a process of another
// build that serves no sandbox to exit.
func dial(ctx context.Context, dir *os.File, o Options, about hello, replace bool) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", through(dir, socketName))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "causeway_unreachable", "the process that holds the sandboxes' networks cannot be reached")
	}
	c := &Client{approver: o.Asker, packages: o.Packages, examiner: o.Examiner, events: newQueue(o.Event), controlled: map[string]bool{}}
	// Accept files only where there is a store for packages. The process may have been taken over,
	// so keep and examine accept nothing but regular files.
	c.peer = newPeer(conn.(*net.UnixConn), o.Packages != nil || o.Examiner != nil, c.handle)
	go func() {
		err := c.peer.serve()
		c.events.end()
		if o.Log != nil {
			o.Log.Debug("the egress gateway's connection ended", "err", err)
		}
	}()
	err = c.hello(ctx, about, replace)
	if err == nil && o.Event != nil {
		err = c.peer.call(ctx, callWatch, struct{}{}, nil)
	}
	if err != nil {
		c.Close()
		if errors.Is(err, errGone) {
			return nil, errAbsent // it has just ended
		}
		return nil, err
	}
	return c, nil
}

// hello negotiates the version. The comment of version states the rules.
func (c *Client) hello(ctx context.Context, about hello, replace bool) error {
	var raw json.RawMessage
	if err := c.peer.call(ctx, callHello, about, &raw); err != nil {
		return err
	}
	var theirs welcome
	// A later version may add fields to its welcome message.
	if err := json.Unmarshal(raw, &theirs); err != nil {
		return badMessage(err)
	}
	c.info = Info{PID: theirs.PID, Build: theirs.Build, Confinement: theirs.Confinement}
	common := about.common(theirs.hello)
	if replace && theirs.Attached == 0 && (common == 0 || theirs.Build != about.Build) {
		err := c.peer.call(ctx, callRetire, struct{}{}, nil)
		if err == nil {
			return errAbsent
		}
		if fault.KindOf(err) != fault.Conflict {
			return err
		}
	}
	if common == 0 {
		return errVersion(theirs)
	}
	c.version = common
	return nil
}

// Attach connects a sandbox to the network. It returns the PEM certificate that the sandbox must
// trust, and sb, the sandbox's end of the attachment, for an engine. The network ends when the last
// descriptor of sb is closed. If a has a Link, sb is nil, and the network ends with Detach or with
// the device.
func (c *Client) Attach(ctx context.Context, a Attachment) (sb *os.File, certificate []byte, err error) {
	record, seq, err := openRecords(a.Record)
	if err != nil {
		return nil, nil, err
	}
	defer record.Close()
	sb, ours, kind, err := c.ends(a)
	if err != nil {
		return nil, nil, err
	}
	if a.Link == nil {
		defer ours.Close()
	}
	if err := checkSupported(a.Policy, c.version); err != nil {
		return nil, nil, errors.Join(err, closeEnd(sb))
	}
	var reply attachReply
	previous := c.setControlled(true, a.Sandbox)
	body := attachBody{Sandbox: a.Sandbox, Policy: layersForVersion(a.Policy, c.version), Secrets: a.Secrets, Seq: seq, Kind: kind}
	if c.version >= withLockfiles {
		// Without the set, an earlier process allows no less: its policies cannot require lockfiles.
		body.Locked = a.Locked
	}
	if err := c.peer.call(ctx, callAttach, body, &reply, ours, record); err != nil {
		c.setControlled(previous, a.Sandbox)
		// If the process has attached the sandbox despite the error, closing its end detaches it.
		if sb != nil {
			sb.Close()
		} else if ctx.Err() != nil {
			_ = c.peer.notify(callDetach, sandboxBody{Sandbox: a.Sandbox})
		}
		return nil, nil, err
	}
	return sb, reply.Certificate, nil
}

// closeEnd closes the sandbox's end of an attachment, if there is one.
func closeEnd(sb *os.File) error {
	if sb == nil {
		return nil
	}
	return sb.Close()
}

// ends returns the ends of an attachment, and the name of its kind in the protocol.
func (c *Client) ends(a Attachment) (sb, ours *os.File, kind egress.AttachmentKind, err error) {
	if a.Kind == "" || a.Kind == egress.Packets {
		// The kind has no name here, because earlier versions know no other kind and reject the
		// field.
		sb, ours, err = attachment.Pair(attachment.Packets)
		return sb, ours, "", err
	}
	if c.version < withKinds {
		return nil, nil, "", fault.Newf(fault.Conflict, "causeway_version", "the process %d that holds the sandboxes' networks has no attachment of the kind %q", c.info.PID, a.Kind).
			WithHint("end the sandboxes that it holds, and try again")
	}
	if a.Link == nil && a.Kind == egress.Ethernet {
		sb, ours, err = attachment.Pair(a.Kind)
		return sb, ours, a.Kind, err
	}
	if a.Link == nil {
		return nil, nil, "", fault.Newf(fault.Invalid, "link", "an attachment of the kind %q needs its device or socket", a.Kind)
	}
	return nil, a.Link, a.Kind, nil
}

// Update replaces a sandbox's policy and secrets. When it returns, connections that are no longer
// allowed are closed. If it fails, the old ones remain in force. runsProbe is set if the sandbox's
// first process will run the readiness probe with the new policy.
func (c *Client) Update(ctx context.Context, sandbox string, layers []policy.Layer, secrets []egress.Secret, runsProbe bool) error {
	if err := checkSupported(layers, c.version); err != nil {
		return err
	}
	var reply updateReply
	body := updateBody{Sandbox: sandbox, Policy: layersForVersion(layers, c.version), Secrets: secrets, RunsProbe: runsProbe && c.version >= withProbes}
	return c.peer.call(ctx, callUpdate, body, &reply)
}

// Detach ends a sandbox's network. It also succeeds if the sandbox is not attached.
func (c *Client) Detach(ctx context.Context, sandbox string) error {
	err := c.peer.call(ctx, callDetach, sandboxBody{Sandbox: sandbox}, nil)
	if err == nil {
		c.setControlled(false, sandbox)
	}
	return err
}

// Adopt makes this client the approver of sandboxes that another client attached. It returns those
// that have no network any more.
func (c *Client) Adopt(ctx context.Context, sandboxes ...string) (missing []string, err error) {
	var reply adoptReply
	// Do this first, because approval requests may arrive before the answer.
	c.setControlled(true, sandboxes...)
	if err := c.peer.call(ctx, callAdopt, adoptBody{Sandboxes: sandboxes}, &reply); err != nil {
		return nil, err
	}
	c.setControlled(false, reply.Missing...)
	return reply.Missing, nil
}

// List returns all attached sandboxes, including those of other clients.
func (c *Client) List(ctx context.Context) ([]Status, error) {
	var reply listReply
	err := c.peer.call(ctx, callList, struct{}{}, &reply)
	return reply.Sandboxes, err
}

// Info describes the process.
func (c *Client) Info() Info { return c.info }

// Done is closed when the process has ended, and with it the network of every sandbox, or when
// Close was called. Connect and Adopt then show which sandboxes have lost their network.
func (c *Client) Done() <-chan struct{} { return c.peer.done }

// Close closes the connection, and does not affect the process and the networks. Until another
// client adopts the sandboxes, they have no controller for approval requests.
func (c *Client) Close() error {
	c.peer.conn.Close()
	<-c.peer.done
	c.peer.workers.Wait()
	return nil
}

// setControlled sets whether this client decides the approval requests of sandboxes. It returns the
// previous value of the last sandbox.
func (c *Client) setControlled(controls bool, sandboxes ...string) (previous bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sandboxes {
		previous = c.controlled[s]
		if controls {
			c.controlled[s] = true
		} else {
			delete(c.controlled, s)
		}
	}
	return previous
}
