package engine

import (
	"slices"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Check refuses a specification that no engine with these properties can create: one with an invalid
// ID, with another kind of image or egress, or with events where the engine observes no programs.
func (s *Spec) Check(info Info) error {
	if err := ids.CheckSandbox(s.ID); err != nil {
		return err
	}
	if err := s.Image.Check(info.Images); err != nil {
		return err
	}
	if err := s.Egress.Check(info.Egress); err != nil {
		return err
	}
	if s.Events != nil && !slices.Contains(info.Capabilities, CanObserve) {
		return fault.Newf(fault.Unsupported, "events_unsupported", "the engine %s does not record what programs do", info.Name).
			WithHint("use an engine with the capability observer, as crannog engines lists them")
	}
	return nil
}
