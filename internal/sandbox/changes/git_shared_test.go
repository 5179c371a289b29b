package changes

import (
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
)

// TestF3ExportsOfSharedRepository checks that a sandbox in one work tree can neither change another
// work tree nor the files that control how git reads objects.
func TestF3ExportsOfSharedRepository(t *testing.T) {
	workTree, submodule := &sandbox.Shared{Worktree: "one"}, &sandbox.Shared{}
	for name, want := range map[string][2]bool{
		"refs": {true, true}, "refs/heads/x": {true, true}, "packed-refs": {true, true}, "logs/refs/heads/x": {true, true},
		"objects": {true, true}, "objects/ab": {true, true}, "objects/pack": {true, true}, "config": {true, true}, "hooks/pre-commit": {true, true},
		"objects/ab/0123456789abcdef0123456789abcdef012345": {true, true}, "objects/pack/pack-0123456789abcdef0123456789abcdef01234567.pack": {true, true},
		"objects/ab/x": {false, false}, "objects/info/alternates": {false, false}, "objects/pack/multi-pack-index": {false, false},
		"HEAD": {false, true}, "index": {false, true}, "logs/HEAD": {false, true}, "refs/bisect/bad": {false, true}, "ORIG_HEAD": {false, true},
		"worktrees/one/HEAD": {true, false}, "worktrees/one/index": {true, false}, "worktrees/one/gitdir": {false, false}, "worktrees/one": {false, false},
		"worktrees/two/HEAD": {false, false}, "worktrees/one/commondir": {false, false}, "worktrees/one/locked": {false, false}, "modules/x/config": {false, false}, "worktrees/onex/HEAD": {false, false},
	} {
		if got := [2]bool{mayExportShared(workTree, name), mayExportShared(submodule, name)}; got != want {
			t.Errorf("export of %s from a work tree and from a submodule: got %v, want %v", name, got, want)
		}
	}
}
