package sandbox_test

import (
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// P74: only the memory of a template that was saved for it continues with a workspace that it did not
// have.
func TestWorkspaceOfSavedMemory(t *testing.T) {
	taking := sandbox.Base{TakesWorkspace: true}
	for name, c := range map[string]struct {
		saved     sandbox.Stored
		asked     string
		want      string
		different bool
	}{
		"a template's":                       {saved: sandbox.Stored{KeptFor: "web", Base: taking}, asked: "/home/me", want: "/home/me"},
		"a template's, without a workspace":  {saved: sandbox.Stored{KeptFor: "web", Base: taking}},
		"a template's of an earlier version": {saved: sandbox.Stored{KeptFor: "web"}, asked: "/home/me", different: true},
		"a snapshot's":                       {saved: sandbox.Stored{Base: taking}, asked: "/home/me", different: true},
		"a snapshot's own":                   {saved: sandbox.Stored{Base: taking, Workspace: "/home/me"}, asked: "/home/me", want: "/home/me"},
		"a snapshot's with another":          {saved: sandbox.Stored{KeptFor: "web", Base: taking, Workspace: "/home/me"}, asked: "/srv", different: true},
	} {
		got, err := c.saved.WorkspaceFor(sandbox.Limits{}, c.asked)
		if got != c.want || (fault.CodeOf(err) == "snapshot_workspace") != c.different {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
