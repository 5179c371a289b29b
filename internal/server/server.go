// Package server owns the assembly of the server: it opens the state, creates the engines and the
// sandbox service, and connects the frontends to them. It is the only package that knows every
// concrete type.
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
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/audit/recording"
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
	"github.com/crannog/crannog/internal/sandbox/volumes"
	"github.com/crannog/crannog/internal/server/connlimit"
	"github.com/crannog/crannog/internal/server/figures"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/volume"
	"github.com/crannog/crannog/internal/state/workspace"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/telemetry"
)

// Options configure Open. StateDir, Log, Engines and Templates are required.
type Options struct {
	StateDir string
	Log      *slog.Logger
	// Engines are the engines on which sandboxes can run. Sandboxes of other engines are listed but
	// not changed.
	Engines   *engine.Registry
	Templates sandbox.Templates
	// Library has the images of this machine; nil means none.
	Library  *library.Library
	Settings sandbox.Settings
	// Server opens the state directory for a server. There may be one server at a time, in addition
	// to any number of other processes.
	Server bool
	// Programs are directories of embedded programs. A server removes those of earlier versions
	// that no saved state needs.
	Programs []string
	// Starts limit how sandboxes are started.
	Starts Starts
	// Pool configures the warm pool of a server; nil means none.
	Pool *Pool
	// Webhook receives approval requests of a server; nil means none.
	Webhook *approval.Webhook
	// Connections limit the connections of clients. The zero value means DefaultConnections.
	Connections Connections
	// Frontends are further frontends of a server.
	Frontends []FrontendMount
	// Domain is the domain of sandboxes' host names, or "".
	Domain  string
	Version string
	// SecretsKey selects the key that encrypts secrets: "" or "file" is a key file in the state
	// directory, "keyring" a key in the system's keyring, "transit:mount/key" a key in a Vault
	// server.
	SecretsKey string
	// Packages configures the package cache.
	Packages PackageOptions
	// Audit limits the audit log.
	Audit AuditOptions
	// Tracing sends traces and figures; nil sends none.
	Tracing *telemetry.Tracing
	// SecretsExec are the command lines that exec: may run, separated by semicolons. "" means none.
	SecretsExec string
}

// Server is an open state directory with all services on it.
type Server struct {
	Service *audited.Service
	Keys    *key.Ring
	// Sessions are the sessions of the web console.
	Sessions *session.Registry
	Secrets  *secrets.Vault
	Engines  *engine.Registry
	// Approvals are the approval requests of sandboxes.
	Approvals *approval.Service
	// Audit is the audit log.
	Audit *audit.Log
	// Report describes the sandboxes of earlier processes that Open found.
	Report lifecycle.Report

	options Options
	observation
	store      *store.Store
	gateway    *egressGateway
	images     *images
	makers     makers
	stored     stored
	lock       *os.File // nil unless opened for a server
	local      net.Listener
	guarded    *connlimit.Guard // set while serving
	endReserve func()           // ends restoring the reserved disk space
}

// observation has what the server knows about what it does.
type observation struct {
	recordings *recording.Store
	tap        *observe.Tap
	figures    *figures.Figures
	draining   atomic.Bool // a shutdown was requested
}

// stored has the services for data that outlive sandboxes.
type stored struct {
	changes *retained.Store
	volumes *volumes.Service
}

// Open assembles a Server and reconciles the store with the engines. The caller must call Close.
func Open(ctx context.Context, o Options) (_ *Server, err error) {
	if o.StateDir == "" || o.Log == nil || o.Engines == nil || o.Templates == nil {
		return nil, errors.New("open state directory: an option is missing")
	}
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	if o.Connections == (Connections{}) {
		o.Connections = DefaultConnections
	}
	d := &Server{Engines: o.Engines, observation: observation{figures: figures.New()}}
	if d.makers.templates, err = openTemplates(&o); err != nil {
		return nil, err
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
	d.keepReserve(ctx)
	d.serverEntry(ctx, audit.ServerStarted)
	d.Keys = key.NewRing(d.store, o.Log, d.keyEntry)
	d.Sessions = session.NewRegistry(session.Options{Store: d.store, Audit: d.Audit, Log: o.Log})
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
	d.bindFigures()
	if d.Report, err = d.Service.Reconcile(ctx); err != nil {
		return nil, err
	}
	if err := d.openMakers(ctx); err != nil {
		return nil, err
	}
	if r := d.Report; !r.Empty() {
		o.Log.Info("state reconciled", "adopted", len(r.Adopted), "expired", len(r.Expired), "lost", len(r.Lost),
			"abandoned", len(r.Abandoned), "finished", len(r.Finished), "orphans", len(r.Orphans), "unserved", len(r.Unserved), "left", len(r.Left), "mended", len(r.Mended), "failed", len(r.Failed), "silent", len(r.Silent))
	}
	return d, nil
}

// openService creates the sandbox service with policies, egress gateway and approval requests.
func (d *Server) openService() error {
	o := d.options
	d.openRecordings()
	flowLog := flows.New(filepath.Join(o.StateDir, "net"))
	d.stored.changes = retained.New(filepath.Join(o.StateDir, "changes"))
	var err error
	d.Approvals, err = approval.New(approval.Options{Store: d.store, Lookup: d.ownerOf, Log: o.Log, Amend: d.amend, Record: d.approvalEntry})
	if err != nil {
		return err
	}
	trail := auditlog.New(d.Audit, o.Log)
	trail.Time(d.figures.Actions)
	d.stored.volumes, err = volumes.New(volumes.Deps{
		Store: volume.Open(filepath.Join(o.StateDir, "volumes"), o.Log), Rows: d.store, Audit: trail, Log: o.Log, Budget: o.Settings.VolumeBudget,
	})
	if err != nil {
		return err
	}
	cache, err := openPackages(o)
	if err != nil {
		return err
	}
	examiner, err := newExaminer(o, cache)
	if err != nil {
		return err
	}
	d.gateway = &egressGateway{examiner: examiner, stateDir: o.StateDir, packages: cache, keyrings: o.Packages.Keyrings, log: o.Log, flows: flowLog, connect: gateway.Connect, approver: d.Approvals}
	d.Service, err = audited.NewService(lifecycle.Deps{
		Admission: openAdmission(o), Room: diskroom.Check{Dir: o.StateDir},
		Store: d.store, Engines: o.Engines, Templates: o.Templates, Log: o.Log, Settings: o.Settings,
		Gateway: d.gateway, Sealed: sealed{d.Secrets, time.Now}, Approvals: d.Approvals, Flows: flowLog,
		Copies: workspace.New(filepath.Join(o.StateDir, "workspaces")), Images: d.images, HostFiles: d.images.hostFiles,
		Manifests: workspace.NewManifests(filepath.Join(o.StateDir, "manifests")), Retained: d.stored.changes,
		Journals: filepath.Join(o.StateDir, "applies"), Provenance: d.provenanceKeys(), Version: o.Version,
		StartTimes: d.figures.Starts,
		Audit:      trail, Volumes: d.stored.volumes, Events: filepath.Join(o.StateDir, "events"), Recordings: d.recordings,
	})
	if err != nil {
		return err
	}
	if o.Library != nil {
		o.Library.Protect(d.Service.Programs)
	}
	d.gateway.onLoss(d.Service.Reconnect)
	return nil
}

// amend adds a host to a sandbox's policy after an approval.
func (d *Server) amend(ctx context.Context, id, endpoint string) error {
	return d.Service.Amend(ctx, id, endpoint)
}

// Close ends the ephemeral sandboxes of this process and closes the state directory. Other
// sandboxes keep running.
func (d *Server) Close(ctx context.Context) error {
	var errs []error
	if d.local != nil {
		if err := d.local.Close(); !errors.Is(err, net.ErrClosed) { // if Serve has not closed it
			errs = append(errs, err)
		}
		d.local = nil
	}
	if d.endReserve != nil {
		d.endReserve()
		d.endReserve = nil
	}
	if d.Approvals != nil {
		d.Approvals.Close()
	}
	if d.tap != nil {
		d.tap.Close()
	}
	d.makers.close()
	if d.Service != nil {
		errs = append(errs, d.Service.Close(ctx))
		d.Service = nil
		for _, e := range d.Engines.All() {
			if closer, ok := e.(io.Closer); ok {
				errs = append(errs, closer.Close()) // removes sandboxes that were created in advance
			}
		}
	}
	if d.gateway != nil {
		errs = append(errs, d.gateway.close())
		d.gateway = nil
	}
	if d.stored.volumes != nil {
		errs = append(errs, d.stored.volumes.Close(ctx)) // before the database, which lists the users of volumes
		d.stored.volumes = nil
	}
	if d.images != nil {
		errs = append(errs, d.images.Close())
		d.images = nil
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
		d.store = nil
	}
	if d.recordings != nil {
		errs = append(errs, d.recordings.Close())
		d.recordings = nil
	}
	d.serverEntry(ctx, audit.ServerStopped)
	errs = append(errs, d.closeRecord())
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	return errors.Join(errs...)
}

// ownerOf returns the owner of a sandbox that has not ended. If the sandbox's row cannot be read,
// the sandbox counts as ended.
func (d *Server) ownerOf(id string) (string, bool) {
	r, err := d.store.Get(context.Background(), id)
	if err == nil && r.State != sandbox.Stopped {
		return r.Owner, true
	}
	// Approvals may also be requested for the retained changes of an ended sandbox.
	m, err := d.stored.changes.Meta(id)
	return m.Owner, err == nil
}

// SocketPath returns the socket of a state directory's server for local callers.
func SocketPath(stateDir string) string { return filepath.Join(stateDir, "crannog.sock") }

// serverRunning returns the error of a second server on a state directory.
func serverRunning(dir string) error {
	return fault.Newf(fault.Conflict, "server_running", "another server runs on the state directory %s", dir).
		WithHint("stop it, or choose another directory with --state")
}
