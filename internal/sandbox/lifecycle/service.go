// Package lifecycle owns the states of a sandbox and every transition between them: create, end,
// pause, resume, fork, replace, reconcile. It drives an engine and a store, and every frontend is a
// client of it.
package lifecycle

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/changes"
	"github.com/crannog/crannog/internal/sandbox/intake"
	"github.com/crannog/crannog/internal/sandbox/recordings"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/sandbox/workspaces"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Service carries out requests. It is safe for concurrent use, and several
// Services, also in several processes, may share one store and one engine's
// state.
type Service struct {
	log      *slog.Logger
	settings sandbox.Settings
	process  process
	store    sandbox.Store
	engines  engines

	// These packages own other data about each sandbox.

	access *access.Service
	audit  *auditlog.Log
	intake *intake.Service
	states *savedstate.Service
	data   sandboxData

	planner    *planner
	starts     starts
	operations *operations
	live       *liveSandboxes
	deadlines  *deadlines
	reconciler *reconciler
	work       *background
	pool       atomic.Pointer[warmpool.Pool] // nil keeps none
	startTimes *metrics.Vector
}

// NewService creates a Service and starts its background work. Call Reconcile before serving, and
// Close at the end.
func NewService(d Deps) (*Service, error) {
	if d.Store == nil || d.Engines == nil || d.Templates == nil || d.Audit == nil || d.Log == nil {
		return nil, errors.New("sandbox service: a dependency is missing")
	}
	if d.Process == (sandbox.Process{}) {
		self, err := sandbox.ThisProcess()
		if err != nil {
			return nil, fmt.Errorf("sandbox service: %w", err)
		}
		d.Process = self
	}
	if d.Alive == nil {
		d.Alive = sandbox.Process.Alive
	}
	if d.Admission == nil {
		d.Admission = admission.New(admission.Options{Log: d.Log})
	}
	settings := d.Settings.WithDefaults()
	limit, err := fillMaximum(settings.Max)
	if err != nil {
		return nil, fmt.Errorf("sandbox service: %w", err)
	}
	settings.Max = limit
	s := &Service{
		store: d.Store, engines: engines{d.Engines, settings.AnyBoundary}, log: d.Log,
		settings: settings, process: process{d.Process, d.Alive},
		starts: starts{d.Admission, d.Room},
		audit:  d.Audit, startTimes: d.StartTimes,
		work: newBackground(), live: newLiveSandboxes(),
	}
	s.operations = newOperations(func() { s.pool.Load().Wake() })
	s.deadlines = &deadlines{
		sandboxes: s, store: d.Store, engines: s.engines, live: s.live, operations: s.operations, work: s.work, log: d.Log,
		retention: settings.Retention, wake: make(chan struct{}, 1), pauses: make(map[chan struct{}]bool),
	}
	s.states = savedstate.New(savedstate.Deps{
		Rows: d.Store, Engines: d.Engines, Templates: d.Templates, Images: d.Images, HostFiles: d.HostFiles, Log: d.Log, NewID: newSnapshotID,
		Saved: func(r sandbox.Row) { s.pool.Load().Saved(r) },
		Dead:  s.process.dead,
	})
	s.reconciler = &reconciler{
		ends: s, repairs: s, store: d.Store, engines: s.engines, process: s.process, operations: s.operations, live: s.live,
		deadlines: s.deadlines, log: d.Log,
	}
	s.access = access.New(access.Deps{
		Settings: settings, Rows: d.Store, Locks: d.Store, Gateway: d.Gateway, Sealed: d.Sealed, Approvals: d.Approvals, Known: s.policyOf, Log: d.Log,
	})
	s.intake, err = intake.New(intake.Deps{
		Dir: d.Events, Flows: d.Flows, Audit: d.Audit, Rows: d.Store, Redactors: s.access, Observer: s.engines.observer, Complete: func(name string) bool { return len(s.engines.info(name).Unseen) == 0 }, Log: d.Log,
		Live: func(id string) bool { _, live := s.live.get(id); return live }, Locked: s.operations.locked,
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox service: %w", err)
	}
	s.planner = &planner{
		settings: settings, engines: s.engines, access: s.access, templates: d.Templates, states: s.states, snapshots: snapshotFinder{d.Store},
		room: d.Room, self: s.process.self, volumes: d.Volumes,
	}
	w := workspaces.Deps{Rows: d.Store, Copies: d.Copies, Manifests: d.Manifests, Log: d.Log}
	if d.Retained != nil {
		w.Retained = d.Retained
	}
	s.data.workspaces = workspaces.New(w)
	s.data.recordings = recordings.New(recordings.Deps{
		Resolve: s.resolve, Rows: d.Store, Recordings: d.Recordings, Log: d.Log,
		HasChanges: func(id string) bool { return d.Retained != nil && d.Retained.Has(id) },
	})
	s.data.changes = changes.New(changes.Deps{
		Source: changesSource{s}, Audit: changesAudit{s}, Log: d.Log, Approvals: d.Approvals, Manifests: d.Manifests, Copies: d.Copies,
		Retained: d.Retained, Journals: d.Journals, Provenance: d.Provenance, Version: d.Version,
	})
	for _, loop := range []func(){s.deadlines.run, s.maintain, s.measureAll, func() { s.states.Run(s.work.ctx, s.sweepStates) }} {
		s.work.start(loop)
	}
	return s, nil
}

// Recordings manages recordings of the output of commands.
func (s *Service) Recordings() *recordings.Service { return s.data.recordings }
