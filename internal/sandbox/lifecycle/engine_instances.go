package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// removeInstance frees what the engine of a row holds of it. Without a row it asks every engine,
// because an instance without a row is not needed.
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
	m := s.engines.meter(sb.Engine)
	if m == nil {
		return engine.Usage{}, unmeasured(sb.Engine)
	}
	return m.Usage(ctx, id)
}

func unmeasured(name string) error {
	return fault.Newf(fault.Unsupported, "metrics_unsupported", "the engine %s measures no usage", name)
}
