package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// served reports whether the engine of a row is registered in this process. What is
// not served is listed and otherwise left as it is: this process can neither see
// whether its instance runs nor end it.
func (s *Service) served(r sandbox.Row) bool { return s.engines.Has(r.Engine) }

// mustServe refuses an operation on a sandbox whose engine is not registered. One
// that has stopped is only a row, which needs no engine.
func (s *Service) mustServe(r sandbox.Row) error {
	if r.State == sandbox.Stopped {
		return nil
	}
	_, err := s.engines.Of(r.Engine)
	return err
}

// choice is what a policy says about the engine.
func (s *Service) choice(p *policy.Policy) engine.Choice {
	return engine.Choice{Least: engine.Boundary(p.Document().Isolation.AtLeast), AnyBoundary: s.settings.AnyBoundary}
}

// compileOn is compile for a sandbox of an engine, which it refuses if the policy
// wants a stronger boundary: a sandbox behind a weaker boundary than was asked for is
// worse than none.
func (s *Service) compileOn(name string, a sandbox.Access) (*policy.Policy, error) {
	p, err := s.access.Compile(a)
	if err != nil {
		return nil, err
	}
	e, err := s.engines.Of(name)
	if err != nil {
		return nil, err
	}
	return p, s.engines.Check(s.choice(p), e)
}

// chooseEngine returns the engine of a new sandbox. Saved memory is restored by the
// engine that saved it and by no other; files alone start anew on any.
func (s *Service) chooseEngine(asked string, p *policy.Policy, from *sandbox.Stored) (engine.Engine, error) {
	c := s.choice(p)
	c.Name = asked
	if from == nil || asked != "" && from.FilesOnly {
		return s.engines.Choose(c)
	}
	made, err := s.engines.Of(from.Engine)
	if err != nil {
		return nil, err
	}
	if asked != "" && asked != from.Engine {
		if _, err := s.engines.Named(asked); err != nil {
			return nil, err
		}
		return nil, fault.Newf(fault.Invalid, "snapshot_engine", "the memory of snapshot %s was saved by the engine %s, and %s cannot restore it", from.ID, from.Engine, asked).
			WithHint("leave the engine out, or take a snapshot of files only")
	}
	return made, s.engines.Check(c, made)
}

// checkpointer returns an engine's ability to save a state and to restore it.
func (s *Service) checkpointer(name string) (engine.Checkpointer, error) {
	e, err := s.engines.Of(name)
	if err != nil {
		return nil, err
	}
	c, ok := e.(engine.Checkpointer)
	if !ok {
		return nil, fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s cannot save the state of a sandbox", name)
	}
	return c, nil
}

// archiver returns an engine's ability to write files alone.
func (s *Service) archiver(name string) (engine.Archiver, error) {
	e, err := s.engines.Of(name)
	if err != nil {
		return nil, err
	}
	a, ok := e.(engine.Archiver)
	if !ok {
		return nil, fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s cannot save the files of a sandbox", name)
	}
	return a, nil
}

// meter returns an engine's ability to measure, or nil.
func (s *Service) meter(name string) engine.Meter {
	e, err := s.engines.Of(name)
	if err != nil {
		return nil
	}
	m, _ := e.(engine.Meter)
	return m
}

// observer returns an engine's ability to write down what programs do, or nil.
func (s *Service) observer(name string) engine.Observer {
	e, err := s.engines.Of(name)
	if err != nil {
		return nil
	}
	o, _ := e.(engine.Observer)
	return o
}

// warmer returns an engine's ability to prepare restores, or nil.
func (s *Service) warmer(name string) engine.Warmer {
	e, err := s.engines.Of(name)
	if err != nil {
		return nil
	}
	w, _ := e.(engine.Warmer)
	return w
}

// removeInstance frees what the engine of a row holds of it. Without a row every
// engine is asked, because an instance that no row leads to is wanted by none.
func (s *Service) removeInstance(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err == nil {
		e, err := s.engines.Of(r.Engine)
		if err != nil {
			return err
		}
		return e.Remove(ctx, id)
	}
	if !isUnknown(err) {
		return err
	}
	var errs []error
	for _, e := range s.engines.All() {
		errs = append(errs, e.Remove(ctx, id))
	}
	return errors.Join(errs...)
}

// Usage returns what a running sandbox uses, as its engine measures it.
func (s *Service) Usage(ctx context.Context, id string) (engine.Usage, error) {
	sb, ok := s.Live(id)
	if !ok {
		return engine.Usage{}, sandbox.Unknown(id)
	}
	m := s.meter(sb.Engine)
	if m == nil {
		return engine.Usage{}, unmeasured(sb.Engine)
	}
	return m.Usage(ctx, id)
}

func unmeasured(name string) error {
	return fault.Newf(fault.Unsupported, "metrics_unsupported", "the engine %s measures nothing", name)
}
