package lifecycle

import (
	"fmt"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/sandbox"
)

// compile makes a policy without regard to an engine; compileOn is for what an engine
// is to start or to keep running under it.
func (s *Service) compile(a sandbox.Access) (*policy.Policy, error) {
	p, _, err := a.Compile(s.settings)
	return p, err
}

// describe says for a log which policy it is.
func describe(p *policy.Policy, a sandbox.Access) string {
	return fmt.Sprintf("%s, level %s, policy %s", a.Network(), p.Level(), p.Digest())
}
