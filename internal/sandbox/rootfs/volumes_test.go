package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/hosttools"
	"github.com/crannog/crannog/internal/sandbox"
)

// A volume is refused where the policy hides files or something else is, and is read-only where the
// policy allows no writing.
func TestVolumesObeyPolicy(t *testing.T) {
	compiled := func(f policy.Filesystem) *policy.Policy {
		p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard", Filesystem: f}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	root := engine.ViewOf(t.TempDir(), "")
	open := compiled(policy.Filesystem{})
	for target, code := range map[string]string{
		"/data": "", "/mnt/.ssh": "policy_denies_mount", "/mnt/.ssh/x": "policy_denies_mount", "data": "mount_target_invalid",
		"/workspace/x": "mount_target_invalid", "/mnt/x/y": "mount_target_invalid", "/vol": "mount_target_invalid", "/vol/x": "mount_target_invalid",
	} {
		b := sandbox.Base{Mounts: []sandbox.Mount{{Source: "/x", Target: "/mnt/x"}}, Volumes: []sandbox.VolumeMount{{Target: "/vol"}}}
		err := AddVolumes(&b, []sandbox.VolumeMount{{Target: target}}, root, open)
		if fault.CodeOf(err) != code && (err != nil || code != "") {
			t.Errorf("volume at %q: got error %v, want %q", target, err, code)
		}
		if added := len(b.Volumes) == 2; added != (code == "") {
			t.Errorf("volume at %q: got added %t, want %t", target, added, code == "")
		}
	}
	no := false
	readOnly := compiled(policy.Filesystem{Workspace: policy.Workspace{Writable: &no}, Write: []string{"/data"}})
	for name, c := range map[string]struct {
		p    *policy.Policy
		want [3]bool // whether each volume is read-only
	}{
		"writable":                        {open, [3]bool{false, false, true}},
		"read-only but for one directory": {readOnly, [3]bool{false, true, true}},
	} {
		b := sandbox.Base{}
		if err := AddVolumes(&b, []sandbox.VolumeMount{{Target: "/data"}, {Target: "/other"}, {Target: "/asked", ReadOnly: true}}, root, c.p); err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{b.Volumes[0].ReadOnly, b.Volumes[1].ReadOnly, b.Volumes[2].ReadOnly}; got != c.want {
			t.Errorf("%s: got read-only %v, want %v", name, got, c.want)
		}
	}
}

// A template shows each directory of a version manager below ToolsDir, and its revision changes
// when a tool is installed.
func TestToolsAreAddedToTemplate(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "versions", "3.12"), 0o755); err != nil {
		t.Fatal(err)
	}
	added := func() sandbox.Template {
		tpl := sandbox.Template{Image: engine.ViewOf(t.TempDir(), ""), Revision: "r", Env: map[string]string{"A": "b"}}
		if err := AddTools(&tpl, []hosttools.Tree{{Source: dir, Env: map[string]string{"TOOL_ROOT": "/x"}}}); err != nil {
			t.Fatal(err)
		}
		return tpl
	}
	first := added()
	binds := first.Image.View().Binds
	if len(binds) != 1 || binds[0].Source != dir || binds[0].Target != ToolPath(1) || !binds[0].Owned {
		t.Errorf("got the mounts %+v, want %s at %s", binds, dir, ToolPath(1))
	}
	if first.Env["A"] != "b" || first.Env["TOOL_ROOT"] != "/x" || len(first.Tools) != 1 || !strings.HasPrefix(first.Revision, "r+") {
		t.Errorf("got %+v, want both variables, the tool and its revision", first)
	}
	if again := added(); again.Revision != first.Revision {
		t.Errorf("the revision of the same tools changed from %s to %s", first.Revision, again.Revision)
	}
	if err := os.Mkdir(filepath.Join(dir, "versions", "3.13"), 0o755); err != nil {
		t.Fatal(err)
	}
	if later := added(); later.Revision == first.Revision {
		t.Error("an installed tool does not change the revision")
	}
	var none sandbox.Template
	if err := AddTools(&none, nil); err != nil || none.Revision != "" {
		t.Errorf("without tools: got %+v, %v, want no change", none, err)
	}
}
