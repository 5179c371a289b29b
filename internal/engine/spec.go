package engine

import (
	"slices"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Check refuses a specification that the engine with this description cannot create: with an
// invalid ID, with a kind of image or egress that the engine lacks, with volumes that it cannot
// attach, or with events if it is not an Observer.
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
	if len(s.Volumes) > 0 && !info.Volumes {
		return fault.Newf(fault.Unsupported, CodeVolumes, "the engine %s cannot attach volumes", info.Name).WithHint(volumesHint)
	}
	if s.TakesWorkspace && !info.TakesWorkspace {
		return fault.Newf(fault.Unsupported, "late_workspace_unsupported", "the engine %s cannot add a workspace to saved memory", info.Name).
			WithHint("show the workspace from the beginning")
	}
	if s.Containers && !info.Containers {
		return fault.Newf(fault.Unsupported, CodeContainers, "the engine %s cannot run containers inside a sandbox", info.Name).WithHint(containersHint)
	}
	if s.Events != nil && !slices.Contains(info.Capabilities, CanObserve) {
		return fault.Newf(fault.Unsupported, "events_unsupported", "the engine %s does not record what programs do", info.Name).
			WithHint("use an engine with the capability observer; crannog engines lists them")
	}
	return nil
}
