package rootfs

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/workspace"
)

// ResolveWorkspace follows links only once, here, under the caller's own permissions. So the
// checked directory is the one that is mounted.
func ResolveWorkspace(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	if !filepath.IsAbs(dir) {
		return "", fault.New(fault.Invalid, "workspace_invalid", "the path of the workspace is not absolute")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "workspace_invalid", "the workspace does not exist or is not accessible")
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "workspace_invalid", "the workspace cannot be reached")
	}
	if !info.IsDir() {
		return "", fault.New(fault.Invalid, "workspace_invalid", "the workspace is not a directory")
	}
	return real, nil
}

// Workspace returns the directory that becomes a sandbox's workspace: the caller's own, into which
// the sandbox never writes, or a copy where the policy requires one. Later instances of a sandbox
// use the same as the first. If again is set, the copy exists already.
func Workspace(ctx context.Context, copies *workspace.Copies, r sandbox.Row, p *policy.Policy, again bool) (string, error) {
	copyID := r.Base.Copy
	if copyID == "" {
		return r.Workspace, nil
	}
	if copies == nil {
		return "", fault.New(fault.Unsupported, "workspace_copy_unavailable", "the policy requires a copy of the workspace, which this server cannot create")
	}
	if again {
		return copies.Find(copyID)
	}
	match, hidden := p.Files().Matcher(), sandbox.HiddenBelow(r.Base.Absent)
	return copies.Make(ctx, copyID, r.Workspace, r.Limits.DiskBytes, func(name string) bool {
		name = path.Join(sandbox.WorkspaceDir, name)
		return match.Denied(name) || hidden(name) != ""
	})
}

// Mounts returns the host directories that the engine mounts: the directories themselves, into
// which the sandbox never writes, or copies where the policy requires them. Later instances of a
// sandbox use the same as the first. If again is set, the copies exist already.
func Mounts(ctx context.Context, copies *workspace.Copies, r sandbox.Row, p *policy.Policy, list []engine.Bind, again bool) ([]engine.Bind, error) {
	copyID := r.Base.Copy
	if copyID == "" || len(list) == 0 {
		return list, nil
	}
	list = slices.Clone(list)
	match, hidden := p.Files().Matcher(), sandbox.HiddenBelow(r.Base.Absent)
	for i := range list {
		var err error
		if again {
			list[i].Source, err = copies.FindPart(copyID, i+1)
		} else {
			target := list[i].Target
			outside := outsideRepository(r.Base, target)
			list[i].Source, err = copies.MakePart(ctx, copyID, i+1, list[i].Source, r.Limits.DiskBytes, func(name string) bool {
				at := path.Join(target, name)
				return match.Denied(at) || hidden(at) != "" || outside(name)
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
