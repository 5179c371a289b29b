// Package server owns the assembly: it opens the state, makes the engine and
// the service, and puts the surfaces in front of them. It is the only package
// that knows every concrete type.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/server/connlimit"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/workspace"
	"github.com/crannog/crannog/internal/store"
)

// Options say what to assemble. StateDir, Log, Engines and Templates are
// required.
type Options struct {
	StateDir string
	Log      *slog.Logger
	// Engines are those that sandboxes can run on. Sandboxes of others are listed and
	// left as they are.
	Engines   *engine.Registry
	Templates sandbox.Templates
	// Library has the images of this machine; nil is none.
	Library  *library.Library
	Settings sandbox.Settings
	// Server takes the state directory for a server: there is one at a time,
	// beside any number of other users.
	Server bool
	// Programs are directories of programs that this one carries. A server
	// removes those of earlier versions that nothing needs.
	Programs []string
	// Starts bound how sandboxes are started.
	Starts Starts
	// Pool lets sandboxes wait for callers while the server runs; nil is none.
	Pool *Pool
	// Webhook is told of approvals while the server runs; nil is none.
	Webhook *approval.Webhook
	// Connections bound what clients take of a server; the zero value is
	// DefaultConnections.
	Connections Connections
	// Doors are further surfaces of a server.
	Doors []Opening
	// Domain is what sandboxes' host names end in, or "".
	Domain  string
	Version string
	// SecretsKey selects what seals secrets: "" or "file" is a key file in the
	// state directory, "keyring" a key in the system's keyring,
	// "transit:mount/key" a key that a Vault server keeps.
	SecretsKey string
	// Record bounds the record.
	Record RecordOptions
	// SecretsExec are the command lines that references exec: may run, apart
	// by semicolons. "" is none.
	SecretsExec string
}

// Server is an open state directory with everything that works on it.
type Server struct {
	Service *audited.Service
	Keys    *key.Ring
	// Sessions are those of the web console.
	Sessions *session.Desk
	Secrets  *secrets.Vault
	Engines  *engine.Registry
	// Approvals are what sandboxes ask people.
	Approvals *approval.Service
	// Record is all that happens under the state directory.
	Record *audit.Log
	// Report is what was found of earlier processes.
	Report lifecycle.Report

	options Options
	store   *store.Store
	tapes   *recording.Shelf
	tap     *observe.Tap
	gateway *egressGateway
	images  *images
	builds  *build.Service // nil without a library
	kept    *retained.Store
	lock    *os.File // nil unless a server
	local   net.Listener
	guarded *connlimit.Guard // of a server that serves
	roomy   func()           // ends keeping room on the disk
}

// Open assembles a Server and brings store and engine together. Close ends it.
func Open(ctx context.Context, o Options) (_ *Server, err error) {
	if o.StateDir == "" || o.Log == nil || o.Engines == nil || o.Templates == nil {
		return nil, errors.New("open daemon: an option is missing")
	}
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return nil, fmt.Errorf("open daemon: %w", err)
	}
	if o.Connections == (Connections{}) {
		o.Connections = DefaultConnections
	}
	d := &Server{Engines: o.Engines}
	if o.Library != nil {
		o.Templates = build.NewRoots(o.Templates)
	}
	d.options = o
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(ctx))
		}
	}()
	if d.store, err = store.Open(ctx, o.StateDir); err != nil {
		return nil, err
	}
	if o.Server {
		if d.lock, err = lockServer(o.StateDir); err != nil {
			return nil, err
		}
	}
	if err := d.openRecord(); err != nil {
		return nil, err
	}
	d.keepRoom(ctx)
	d.serverEntry(ctx, audit.ServerStarted)
	d.Keys = key.NewRing(d.store, o.Log, d.keyEntry)
	d.Sessions = session.NewDesk(session.Options{Store: d.store, Record: d.Record, Log: o.Log})
	if d.Secrets, err = openSecrets(o, d.store); err != nil {
		return nil, err
	}
	if err := d.openImages(); err != nil {
		return nil, err
	}
	if err := d.openService(); err != nil {
		return nil, err
	}
	if err := d.openTap(); err != nil {
		return nil, err
	}
	if d.Report, err = d.Service.Reconcile(ctx); err != nil {
		return nil, err
	}
	if err := d.openBuilds(ctx); err != nil {
		return nil, err
	}
	if r := d.Report; !r.Empty() {
		o.Log.Info("state reconciled", "adopted", len(r.Adopted), "expired", len(r.Expired), "lost", len(r.Lost),
			"abandoned", len(r.Abandoned), "finished", len(r.Finished), "orphans", len(r.Orphans), "unserved", len(r.Unserved), "left", len(r.Left), "mended", len(r.Mended), "failed", len(r.Failed))
	}
	return d, nil
}

// openService makes what sandboxes live by: the rules, their way out, and the
// people who are asked.
func (d *Server) openService() error {
	o := d.options
	d.openRecordings()
	flowLog := flows.New(filepath.Join(o.StateDir, "net"))
	d.kept = retained.New(filepath.Join(o.StateDir, "changes"))
	var err error
	d.Approvals, err = approval.New(approval.Options{Store: d.store, Lookup: d.ownerOf, Log: o.Log, Amend: d.amend, Record: d.approvalEntry})
	if err != nil {
		return err
	}
	d.gateway = &egressGateway{stateDir: o.StateDir, log: o.Log, flows: flowLog, connect: gateway.Connect, asker: d.Approvals}
	d.Service, err = audited.NewService(lifecycle.Deps{
		Admission: openAdmission(o), Room: diskroom.Room{Dir: o.StateDir},
		Store: d.store, Engines: o.Engines, Templates: o.Templates, Log: o.Log, Settings: o.Settings,
		Gateway: d.gateway, Sealed: sealed{d.Secrets, time.Now}, Questions: d.Approvals, Flows: flowLog,
		Copies: workspace.New(filepath.Join(o.StateDir, "workspaces")), Images: d.images, HostFiles: d.images.hostFiles,
		Manifests: workspace.NewManifests(filepath.Join(o.StateDir, "manifests")), Kept: d.kept,
		Journals: filepath.Join(o.StateDir, "applies"), Provenance: d.provenanceKeys(), Version: o.Version,
		Audit: auditlog.New(d.Record, o.Log), Events: filepath.Join(o.StateDir, "events"), Recordings: d.tapes,
	})
	if err != nil {
		return err
	}
	if o.Library != nil {
		o.Library.Protect(d.Service.Programs)
	}
	d.gateway.onLoss(d.Service.Relink)
	return nil
}

// amend adds a host to what a sandbox may reach, because a person said so.
func (d *Server) amend(ctx context.Context, id, endpoint string) error {
	return d.Service.Amend(ctx, id, endpoint)
}

// Close ends the ephemeral sandboxes of this process and lets go of the state.
// Other sandboxes run on.
func (d *Server) Close(ctx context.Context) error {
	var errs []error
	if d.local != nil {
		if err := d.local.Close(); !errors.Is(err, net.ErrClosed) { // as serving leaves it
			errs = append(errs, err)
		}
		d.local = nil
	}
	if d.roomy != nil {
		d.roomy()
		d.roomy = nil
	}
	if d.Approvals != nil {
		d.Approvals.Close()
	}
	if d.tap != nil {
		d.tap.Close()
	}
	if d.Service != nil {
		errs = append(errs, d.Service.Close(ctx))
		d.Service = nil
		for _, one := range d.Engines.All() {
			if closer, ok := one.(io.Closer); ok {
				errs = append(errs, closer.Close()) // what it has made in advance
			}
		}
	}
	if d.gateway != nil {
		errs = append(errs, d.gateway.close())
		d.gateway = nil
	}
	if d.images != nil {
		errs = append(errs, d.images.Close())
		d.images = nil
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
		d.store = nil
	}
	if d.tapes != nil {
		errs = append(errs, d.tapes.Close())
		d.tapes = nil
	}
	d.serverEntry(ctx, audit.ServerStopped)
	errs = append(errs, d.closeRecord())
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	return errors.Join(errs...)
}

// ownerOf returns the owner of a sandbox that has not ended. A sandbox whose row cannot be read
// counts as ended: there is no owner to ask about it.
func (d *Server) ownerOf(id string) (string, bool) {
	r, err := d.store.Get(context.Background(), id)
	if err == nil && r.State != sandbox.Stopped {
		return r.Owner, true
	}
	// People are asked about what an ended one left as about a sandbox.
	m, err := d.kept.Meta(id)
	return m.Owner, err == nil
}

// SocketPath is where a server on a state directory listens for local
// callers.
func SocketPath(stateDir string) string { return filepath.Join(stateDir, "crannog.sock") }

func serverRunning(dir string) error {
	return fault.Newf(fault.Conflict, "server_running", "another server runs on the state directory %s", dir).
		WithHint("stop it, or choose another directory with --state")
}
