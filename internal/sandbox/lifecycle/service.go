// Package lifecycle owns the states of a sandbox and every move between them: create,
// end, pause, resume, fork, replace, reconcile. It drives an engine and a store, and
// every frontend is a client of it.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/changes"
	"github.com/crannog/crannog/internal/sandbox/intake"
	"github.com/crannog/crannog/internal/sandbox/recordings"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/sandbox/workspaces"
	"github.com/crannog/crannog/internal/state/retained"
	"github.com/crannog/crannog/internal/state/workspace"
)

// Deps is what a Service is made of. Store, Engines, Templates, Audit and Log
// are required.
type Deps struct {
	Store sandbox.Store
	// Engines are those that sandboxes can run on. The rows of others are listed and
	// left as they are.
	Engines   *engine.Registry
	Templates sandbox.Templates
	Log       *slog.Logger
	Settings  sandbox.Settings
	// Way gives sandboxes a network, Sealed the secrets that they use there,
	// and Flows holds the records. Without them every sandbox that asks for a
	// network is refused.
	Way    sandbox.Way
	Sealed sandbox.Sealed
	// Questions are ended with the policy or the sandbox that asked them.
	Questions sandbox.Questions
	Flows     *flows.Dir
	// Copies holds copies of workspaces, for policies that want one. Without
	// it they are refused.
	Copies *workspace.Copies
	// Images holds what is saved of sandboxes. Without it no state is saved.
	Images sandbox.Images
	// HostFiles keeps copies of the host files to which saved memory refers.
	// Without it, saved memory can be restored only as long as the host has them.
	HostFiles sandbox.HostFiles
	// Audit takes entries of what happens. What it refuses does not happen, except that
	// sandboxes can always be paused and ended.
	Audit *auditlog.Log
	// Events is a directory for what engines see in sandboxes, on its way into
	// the record, with what Flows holds. "" takes in neither.
	Events string
	// Recordings are of what commands printed. They go with the sandbox's
	// record. Without it nothing is dropped.
	Recordings sandbox.Recordings
	// Manifests note what workspaces were, Kept holds what ended sandboxes have
	// changed, and Journals is a directory for what is being applied. Without
	// them nothing is compared, kept or applied.
	Manifests *workspace.Manifests
	Kept      *retained.Store
	Journals  string
	// Provenance signs for what comes out, and Version is what it then says of
	// this program. Without it nothing is signed for.
	Provenance *provenance.Keys
	Version    string
	// Admission decides when a sandbox may be started; nil makes a queue for this
	// Service alone.
	Admission *admission.Queue
	// Room is what the disk has for new sandboxes; the zero value has no bounds.
	Room diskroom.Room
	// Process is the process that holds what the Service creates; zero is this one.
	// Alive reports whether another process still runs; nil asks the kernel.
	Process sandbox.Process
	Alive   func(sandbox.Process) bool
}

// Service carries out requests. It is safe for concurrent use, and several
// Services, also in several processes, may share one store and one engine's
// state.
type Service struct {
	store      sandbox.Store
	engines    engines
	templates  sandbox.Templates
	log        *slog.Logger
	settings   sandbox.Settings
	access     *access.Service
	workspaces *workspaces.Service
	images     sandbox.Images
	hostFiles  hostFiles
	recordings *recordings.Service
	audit      *auditlog.Log
	intake     *intake.Service
	self       sandbox.Process
	alive      func(sandbox.Process) bool

	locks     locks
	admission *admission.Queue
	room      diskroom.Room
	changes   *changes.Service
	wake      chan struct{} // tells the clock that an end has changed
	// unsettled tells that there are new images.
	unsettled chan struct{}
	ctx       context.Context
	stop      context.CancelFunc
	loops     sync.WaitGroup

	mu       lockorder.RWMutex[rankService]
	closed   bool
	live     map[string]*box
	creating map[string]context.CancelCauseFunc
	removing map[string]int  // removals that wait or are under way
	held     map[string]bool // ephemeral sandboxes that end with this Service
	// unwritten are sandboxes of whose passing state this Service could not
	// write down how it went.
	unwritten map[string]bool
	failures  map[string]failure // of resuming
	put       map[string]putOff  // pauses that are tried again
	// late are the pauses by the clock that are under way.
	late     map[chan struct{}]bool
	requests sync.WaitGroup // creations under way

	pool atomic.Pointer[warmpool.Pool] // nil keeps none
}

// NewService makes a Service and starts its clock. Call Reconcile before
// serving, and Close at the end.
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
	most, err := most(settings.Max)
	if err != nil {
		return nil, fmt.Errorf("sandbox service: %w", err)
	}
	settings.Max = most
	s := &Service{
		store: d.Store, engines: engines{d.Engines, settings.AnyBoundary}, templates: d.Templates, log: d.Log,
		settings: settings, self: d.Process, alive: d.Alive,
		images: d.Images, hostFiles: hostFiles{d.Store, d.HostFiles, d.Log},
		admission: d.Admission, room: d.Room,
		wake:     make(chan struct{}, 1),
		live:     make(map[string]*box),
		audit:    d.Audit,
		creating: make(map[string]context.CancelCauseFunc),
		removing: make(map[string]int),
		held:     make(map[string]bool),

		unwritten: make(map[string]bool), failures: make(map[string]failure), put: make(map[string]putOff), late: make(map[chan struct{}]bool),
		unsettled: make(chan struct{}, 1),
	}
	s.access = access.New(access.Deps{
		Settings: settings, Rows: d.Store, Gateway: d.Way, Sealed: d.Sealed, Questions: d.Questions, Known: s.policyOf, Log: d.Log,
	})
	s.intake, err = intake.New(intake.Deps{
		Dir: d.Events, Flows: d.Flows, Audit: d.Audit, Rows: d.Store, Masks: s.access, Observer: s.engines.observer, Log: d.Log,
		Live: func(id string) bool { _, live := s.known(id); return live }, Locked: s.locked,
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox service: %w", err)
	}
	w := workspaces.Deps{Rows: d.Store, Copies: d.Copies, Manifests: d.Manifests, Log: d.Log}
	if d.Kept != nil {
		w.Retained = d.Kept
	}
	s.workspaces = workspaces.New(w)
	s.recordings = recordings.New(recordings.Deps{
		Resolve: s.resolve, Rows: d.Store, Shelf: d.Recordings, Log: d.Log,
		HasChanges: func(id string) bool { return d.Kept != nil && d.Kept.Has(id) },
	})
	s.changes = changes.New(changes.Deps{
		Source: changesSource{s}, Audit: changesAudit{s}, Log: d.Log, Approvals: d.Questions, Manifests: d.Manifests, Copies: d.Copies,
		Retained: d.Kept, Journals: d.Journals, Provenance: d.Provenance, Version: d.Version,
	})
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.loops.Go(s.clock)
	s.loops.Go(s.attend)
	s.loops.Go(s.sample)
	s.loops.Go(s.tidy)
	return s, nil
}

// Recordings decides about recordings of what commands printed.
func (s *Service) Recordings() *recordings.Service { return s.recordings }

// closeTimeout bounds how long Close waits to end one ephemeral sandbox when
// its own context has no deadline.
const closeTimeout = 30 * time.Second

// Close ends what is being created and the ephemeral sandboxes of this
// Service, and stops watching the others, which go on. What it has saved is on
// the disk then.
func (s *Service) Close(ctx context.Context) error {
	s.awaitLate(ctx)
	s.mu.Lock()
	s.closed = true
	for _, cancel := range s.creating {
		cancel(shuttingDown())
	}
	s.mu.Unlock()
	s.requests.Wait()
	s.pool.Load().Close()

	s.mu.Lock()
	held := make([]string, 0, len(s.held))
	for id := range s.held {
		held = append(held, id)
	}
	s.mu.Unlock()
	errs := make([]error, len(held))
	var group sync.WaitGroup
	for i, id := range held {
		group.Go(func() { errs[i] = s.drop(ctx, id) })
	}
	group.Wait()
	// With the lock, so that no box is tracked between here and Wait.
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.loops.Wait()
	s.persistImages(ctx)
	s.release()
	errs = append(errs, s.intake.Close(ctx))
	s.audit.Tick(ctx)
	return errors.Join(errs...)
}

// release forgets all boxes without ending them.
func (s *Service) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, b := range s.live {
		delete(s.live, id)
		close(b.gone)
	}
}

// drop ends a sandbox and leaves no record of it.
func (s *Service) drop(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	unlock, err := s.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.end(ctx, id, sandbox.ReasonKilled, time.Time{}); err != nil {
		return err
	}
	return s.erase(ctx, id)
}

// erase drops the row of a sandbox that has ended. What the record holds stays.
func (s *Service) erase(ctx context.Context, id string) error {
	if err := s.intake.Forget(ctx, id); err != nil {
		return err
	}
	if err := s.recordings.Drop(id); err != nil {
		return err
	}
	if err := s.store.Delete(ctx, id); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.held, id)
	delete(s.failures, id)
	delete(s.put, id)
	s.mu.Unlock()
	return nil
}

const codeShuttingDown = "shutting_down"

func shuttingDown() error {
	return fault.New(fault.Unavailable, codeShuttingDown, "the server is shutting down")
}
