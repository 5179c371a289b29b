package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// removeInstance frees the resources that a row's engine has for the sandbox. Without a row it
// removes the instance from every engine, because an instance without a row is not needed.
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

// Usage returns the resource usage of a running sandbox, as measured by its engine.
func (s *Service) Usage(ctx context.Context, id string) (engine.Usage, error) {
	sb, ok := s.Live(id)
	if !ok {
		return engine.Usage{}, sandbox.Unknown(id)
	}
	m := s.engines.meter(sb.Engine)
	if m == nil {
		return engine.Usage{}, unmeasured(sb.Engine)
	}
	return m.Usage(ctx, id)
}

func unmeasured(name string) error {
	return fault.Newf(fault.Unsupported, "metrics_unsupported", "the engine %s measures no usage", name)
}
