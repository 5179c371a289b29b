package lifecycle

import (
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// containersOf returns whether container engines can run in a new sandbox: if the request asks for
// it, or if it starts from a snapshot of such a sandbox. It returns an error if the policy forbids
// it. Memory that was saved without containers cannot be restored with them.
func containersOf(req sandbox.CreateRequest, t sandbox.Template, p *policy.Policy) (bool, error) {
	wanted := req.Containers
	if n := t.Origin; n != nil {
		if wanted && !n.Base.Containers && !n.FilesOnly {
			return false, fault.Newf(fault.Invalid, "snapshot_containers", "the memory of snapshot %s was saved in a sandbox without containers inside, which cannot change", n.ID).
				WithHint("leave containers out, or take a snapshot of files only")
		}
		wanted = wanted || n.Base.Containers
	}
	return wanted, checkContainers(wanted, p)
}

// checkContainers returns an error if container engines would run in a sandbox whose policy forbids
// it.
func checkContainers(wanted bool, p *policy.Policy) error {
	if !wanted || p.Containers() {
		return nil
	}
	return fault.New(fault.Denied, "policy_denies_containers", "the policy does not allow containers inside the sandbox").
		WithHint("leave containers out, or use a policy with isolation.containers: allow, which no layer may deny and which level strict denies")
}
