package lifecycle

import (
	"fmt"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// compile makes the policy of a sandbox on this service's engine.
func (s *Service) compile(a sandbox.Access) (*policy.Policy, error) {
	p, _, err := a.Compile(s.settings)
	if err != nil {
		return nil, err
	}
	return p, s.checkBoundary(p)
}

// strength orders boundaries from the weakest.
var strength = map[engine.Boundary]int{
	engine.NoBoundary: 0, engine.SharedKernel: 1, engine.UserspaceKernel: 2, engine.OwnKernel: 3,
}

// checkBoundary refuses an engine whose wall is weaker than the policy wants:
// a sandbox behind a weaker wall than was asked for is worse than none.
func (s *Service) checkBoundary(p *policy.Policy) error {
	want := engine.Boundary(p.Document().Isolation.AtLeast)
	have := s.engine.Info()
	if want == "" || strength[have.Boundary] >= strength[want] || have.Boundary == engine.NoBoundary && s.settings.AnyBoundary {
		return nil
	}
	return fault.Newf(fault.Unsupported, "boundary_too_weak", "the policy wants a boundary of at least %s, and the engine %s has %s",
		want, have.Name, have.Boundary).WithHint("use another engine, or another level")
}

// describe says for a log which policy it is.
func describe(p *policy.Policy, a sandbox.Access) string {
	return fmt.Sprintf("%s, level %s, policy %s", a.Network(), p.Level(), p.Digest())
}
