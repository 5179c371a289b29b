// Package proxy owns the handling of one sandbox's connections. It checks that each has one
// identity from its first packet to the upstream's certificate, and applies the policy. It requests
// approvals, sets sealed secrets and redacts responses. It writes an entry for everything that it
// allowed and refused. The packages beside it know the formats of hosts, rules, redaction and
// packets.
package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/lockfile"
)

var _ attachment.Handler = (*Handler)(nil)

// Config configures a Handler. All fields without a default are required.
type Config struct {
	Sandbox  string
	Policy   *policy.Policy
	CA       *certs.Authority
	Secrets  []egress.Secret
	Recorder egress.Recorder
	Asker    egress.Approver
	Dialer   *names.Dialer
	// Roots verify upstream servers. They do not include the sandbox's own authority.
	Roots *x509.CertPool
	// Limits limit what the sandbox may cost. A zero field means the default.
	Limits Limits
	// After is the number of the sandbox's last entry, from which a new process continues.
	After uint64
	// Packages answers requests for packages, for policies with packages.cache.
	Packages PackageCache
	// Locked is what the lockfiles of the sandbox's workspace name, for policies with
	// packages.lockfile_only. Updates do not change it.
	Locked *lockfile.Index
	// SpoolFile creates the file that holds a large body during an approval. The default is an
	// unnamed file in the directory for temporary files. If it fails, memory is used, up to
	// Limits.Spool.
	SpoolFile func() (*os.File, error)
}

// Handler decides about the traffic of one sandbox. It is an attachment.Handler.
type Handler struct {
	sandbox string
	asker   egress.Approver
	limits  Limits
	// spoolFile creates the file that holds a large body.
	spoolFile func() (*os.File, error)

	names   *names.Table
	probes  probes
	records records
	current atomic.Pointer[generation]

	front  front
	back   back
	load   load
	floods floods
	git    gitMemory

	life life

	updates sync.Mutex // one Update at a time

	mu     sync.Mutex
	flows  map[*flow]struct{}
	uses   secretUses
	closed bool
	empty  chan struct{} // closed when the Handler is closed and no flow is left
}

// front is the HTTP server towards the sandbox. It serves each connection that is handed over.
type front struct {
	ca       *certs.Authority
	tls      *tls.Config
	server   *http.Server
	handover *handover
	served   chan struct{} // closed when the server has ended
}

// back reaches upstream servers and verifies them.
type back struct {
	dialer   *names.Dialer
	roots    *x509.CertPool
	packages PackageCache // nil if there is none
	locked   *lockfile.Index
}

// life ends with the Handler, which ends all its work.
type life struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// load is what the sandbox's requests use now.
type load struct {
	meters  meters
	spooled atomic.Int64 // bytes of bodies that are held
	running atomic.Int64 // requests
}

// floods limit the entries about events that cost the sandbox nothing.
type floods struct{ queries, packets, connects flood }

// gitMemory stores facts about git requests, because a client sends several requests for one
// operation.
type gitMemory struct {
	fetches    recent[fetchKey]  // fetches that a person approved
	advertised recent[gitRemote] // servers that have listed refs
}

// secretUses has the uses of each secret. Handler.mu guards it.
type secretUses struct {
	spent map[string]int64 // number of uses, by name
	// permits are the secrets whose first use has been approved.
	permits map[permission]bool
}

// New creates a Handler and writes an entry about it. If that fails, the Handler is not created.
func New(c Config) (*Handler, error) {
	if c.Sandbox == "" || c.Policy == nil || c.CA == nil || c.Recorder == nil || c.Asker == nil || c.Dialer == nil || c.Roots == nil {
		return nil, fault.New(fault.Internal, "causeway_incomplete", "a part of the egress gateway is missing")
	}
	b := &Handler{
		sandbox: c.Sandbox, asker: c.Asker, limits: c.Limits.orDefault(), spoolFile: c.SpoolFile,
		names: names.NewTable(), flows: map[*flow]struct{}{}, empty: make(chan struct{}),
		front: front{ca: c.CA, handover: newHandover(), served: make(chan struct{})},
		back:  back{dialer: c.Dialer, roots: c.Roots, packages: c.Packages, locked: c.Locked},
		uses:  secretUses{spent: map[string]int64{}, permits: map[permission]bool{}},
	}
	if b.spoolFile == nil {
		b.spoolFile = unnamedFile
	}
	b.records = records{sandbox: c.Sandbox, to: c.Recorder, seq: c.After}
	b.floods.queries.rate, b.floods.packets.rate, b.floods.connects.rate = queriesPerSecond, packetsPerSecond, connectsPerSecond
	b.life.ctx, b.life.cancel = context.WithCancel(context.Background())
	g, err := b.generation(c.Policy, c.Secrets, nil)
	if err != nil {
		b.life.cancel()
		return nil, err
	}
	b.current.Store(g)
	b.ExpectProbes()
	if err := b.records.add(attachmentRecord("the network is open"), g); err != nil {
		b.life.cancel()
		return nil, fault.Wrap(err, fault.Unavailable, "records_unavailable", "the sandbox's network log cannot be written")
	}
	b.front.tls = b.serverTLS()
	b.front.server = b.httpServer()
	go func() {
		defer close(b.front.served)
		_ = b.front.server.Serve(b.front.handover)
	}()
	return b, nil
}

func (b *Handler) httpServer() *http.Server {
	s := &http.Server{
		Handler:           http.HandlerFunc(b.serve),
		ReadHeaderTimeout: b.limits.Handshake,
		IdleTimeout:       b.limits.Idle,
		MaxHeaderBytes:    b.limits.Header,
		ConnState:         b.state,
		ConnContext:       withFlow,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // its messages contain the sandbox's data, which is in the entries anyway
		// Otherwise net/http answers "OPTIONS *" itself, without an entry.
		DisableGeneralOptionsHandler: true,
		// A sandbox is on the same machine, so small windows do not slow it down.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 100, MaxReadFrameSize: 64 << 10,
			MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 128 << 10,
		},
		Protocols: new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	return s
}

// Update replaces the policy and the secrets. When it returns, connections and requests that they
// do not allow are closed. If it fails, nothing has changed.
func (b *Handler) Update(p *policy.Policy, secrets []egress.Secret) error {
	if p == nil {
		return fault.New(fault.Internal, "causeway_incomplete", "there is no policy to put in force")
	}
	b.updates.Lock()
	defer b.updates.Unlock()
	old := b.current.Load()
	g, err := b.generation(p, secrets, old)
	if err != nil {
		return err
	}
	// Write the entry first: without it the policy must not take effect.
	if err := b.records.add(attachmentRecord("the policy is "+p.Digest()), g); err != nil {
		return fault.Wrap(err, fault.Unavailable, "records_unavailable", "the sandbox's network log cannot be written")
	}
	b.current.Store(g)
	for _, f := range b.open() {
		f.review(g)
	}
	if old.transport != g.transport {
		old.transport.CloseIdleConnections()
	}
	return nil
}

// Close ends every connection and returns when nothing of the sandbox runs.
func (b *Handler) Close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	if first && len(b.flows) == 0 {
		close(b.empty)
	}
	b.mu.Unlock()
	if first {
		b.life.cancel()
		_ = b.front.handover.Close()
		for _, f := range b.open() {
			f.kill("the sandbox's network was closed")
		}
		_ = b.front.server.Close()
	}
	<-b.front.served
	<-b.empty
	b.current.Load().transport.CloseIdleConnections()
	if first {
		// No caller is left to handle the error.
		_ = b.records.add(attachmentRecord("the network is closed"), b.current.Load())
	}
}

func (b *Handler) open() []*flow {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]*flow, 0, len(b.flows))
	for f := range b.flows {
		list = append(list, f)
	}
	return list
}

// Names answers a DNS query with synthetic addresses. It forwards nothing.
func (b *Handler) Names(query []byte, max int) []byte {
	if !b.floods.queries.take(b, egress.KindDNS) {
		return nil
	}
	g := b.current.Load()
	d := egress.Decision{Effect: egress.Deny, Rule: policy.RuleUnlisted, Policy: g.policy.Digest()}
	reply, q, err := names.Answer(query, max, func(name string) (netip.Addr, bool) {
		if !g.policy.Reachable(name) {
			d.Reason = "nothing of this host can be reached"
			d.Fix = g.policy.Connect(name, 443).Fix
			return netip.Addr{}, false
		}
		a, err := b.names.Address(name)
		if err != nil {
			d.Rule, d.Layer, d.Reason = policy.RuleLimit, policy.LayerFloor, fault.PublicText(err)
			return netip.Addr{}, false
		}
		d.Effect, d.Rule = egress.Allow, "dns"
		return a, true
	})
	r := egress.Record{Time: time.Now(), Kind: egress.KindDNS, Method: q.Type, Host: q.Name, Decision: d}
	if err != nil {
		r.Error = fault.PublicText(err)
	}
	if q.Refused {
		r.Decision = denied(policy.RuleLookup, "this type of query is not answered")
	}
	r.Probe = b.probes.take(r)
	if b.records.add(r, g) != nil {
		return nil
	}
	return reply
}

// Dropped implements attachment.Handler. It writes an entry about a dropped packet, up to a number
// per second.
func (b *Handler) Dropped(proto string, dst netip.AddrPort) {
	if !b.floods.packets.take(b, egress.KindPacket) {
		return
	}
	r := egress.Record{
		Time: time.Now(), Kind: egress.KindPacket, Method: proto, Host: dst.Addr().String(), Port: int(dst.Port()),
		Decision: denied(policy.RulePacket, "only TCP connections and DNS lookups are let out"),
	}
	r.Probe = b.probes.take(r)
	// The packet was already dropped, so there is nothing to refuse.
	_ = b.records.add(r, b.current.Load())
}
