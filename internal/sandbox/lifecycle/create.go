package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/telemetry"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// bootTimeout bounds a boot. A boot normally takes tens of milliseconds; if it takes a minute, the
// host cannot run the sandbox.
const bootTimeout = time.Minute

// undoTimeout limits the cleanup after a failed or canceled request, which must not stop because
// the caller went away.
const undoTimeout = 30 * time.Second

// Create creates a sandbox and returns when it is ready. After an error nothing of the sandbox is
// left.
func (s *Service) Create(ctx context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	started := time.Now()
	if err := s.starts.room.Check(); err != nil {
		return sandbox.Sandbox{}, err
	}
	r, template, compiled, err := s.planner.plan(ctx, caller, req)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	spec, config, search, err := rootfs.Compose(&r, template, compiled, s.engines.info(r.Engine))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	from, err := s.planner.origin(&r, template, compiled)
	if exceedsTemplate(template, err) {
		req.Boots = true
		return s.Create(ctx, caller, req)
	}
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	from.request, from.search = req.RequestID, search
	if sb, acquired, err := s.pool.Load().Acquire(ctx, warmpool.Plan{Row: r, Template: template, Policy: compiled, Spec: spec, Config: config}); acquired {
		return sb, err
	}
	// Nothing has to be undone after an error here.
	if err := s.starts.queue.Check(ctx, r.Owner); err != nil {
		return sandbox.Sandbox{}, err
	}
	ctx, release, err := s.operations.beginNew(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer release()

	if err := s.runCreation(ctx, s.newBoot(r, compiled, spec, config, from)); err != nil {
		return sandbox.Sandbox{}, err
	}
	if search != nil {
		r.Base.Keys = search.Found()
	}
	return s.created(ctx, r, started, "engine"), nil
}

// created starts to watch a sandbox that is ready.
func (s *Service) created(ctx context.Context, r sandbox.Row, started time.Time, source string) sandbox.Sandbox {
	r.State, r.Access.Values, r.Locked = sandbox.Running, nil, nil
	s.track(r)
	if r.Ephemeral {
		s.live.addEphemeral(r.ID)
	}
	s.log.InfoContext(ctx, "sandbox created", "sandbox", r.ID, "owner", r.Owner, "engine", r.Engine, "from", source, "took", time.Since(started))
	countStart(ctx, s.startTimes, r, source, started)
	s.note(ctx, r.ID, "info", "sandbox created", map[string]string{
		"template": r.Template, "engine": r.Engine, "from": source, "took": time.Since(started).Round(time.Millisecond).String(),
	})
	return r.Shown()
}

// countStart counts a start and describes it in the request's span. source is where the instance came
// from.
func countStart(ctx context.Context, times *metrics.Vector, r sandbox.Row, source string, began time.Time) {
	telemetry.Set(ctx, telemetry.Sandbox.String(r.ID), telemetry.Engine.String(r.Engine), telemetry.Source.String(source))
	times.Observe(time.Since(began), r.Engine, source)
}

func removedDuringRequest() error {
	return fault.New(fault.Conflict, sandbox.CodeRemoved, "the sandbox was removed while the request ran")
}

// canceled classifies why a context ended.
func canceled(cause error) error { return sandbox.Canceled(cause) }
