package gvisor

import (
	"cmp"
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor/owners"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// workspaceDir is the path of the workspace in a sandbox.
const workspaceDir = "/workspace"

// ownersOf returns the owners that the host's files have in the sandbox.
func ownersOf(spec engine.Spec) (owners.Plan, error) {
	plan := owners.Plan{UID: engine.UserID, GID: engine.UserID}
	// The owners in a saved state cannot change, so a sandbox that may get a workspace later gives
	// the directory at its path to the user from the beginning.
	if spec.Workspace != "" || spec.TakesWorkspace {
		plan.Places = append(plan.Places, workspaceDir)
	}
	for _, b := range spec.Image.View().Binds {
		if b.Owned {
			plan.Places = append(plan.Places, b.Target)
		}
	}
	// The user may change all files that are shown copy-on-write.
	for _, m := range spec.Mounts {
		plan.Places = append(plan.Places, m.Target)
	}
	if file := spec.Image.View().Owners; file != "" {
		table, err := fileowners.Read(file)
		if err != nil {
			return plan, err
		}
		plan.Files = table
	}
	return plan, nil
}

// planOwners adds the plan to a specification. Its covers are sorted, so that a restored state has
// the same plan as when it was saved, and directories come before their content.
func planOwners(spec *specs.Spec, plan owners.Plan) error {
	plan.Covers = slices.SortedFunc(slices.Values(plan.Covers), func(a, b owners.Cover) int {
		return cmp.Or(cmp.Compare(len(a.Path), len(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	text, err := plan.Text()
	if err != nil {
		return fmt.Errorf("owners of files: %w", err)
	}
	spec.Annotations[owners.Annotation] = text
	return nil
}

// ownersPlan is the plan of this process's sandbox.
var ownersPlan owners.Plan

// installOwners activates the plan before the first process does anything else. Without it, the
// sandbox's user could not access the workspace, and covered paths of the workspace would be
// visible.
func installOwners(t *sentry.Task) error {
	if err := owners.Install(t, ownersPlan); err != nil {
		return fmt.Errorf("owners of files: %w", err)
	}
	return nil
}
