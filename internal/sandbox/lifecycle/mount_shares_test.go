package lifecycle

import (
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// TestF3SharesAreMountedByName checks that callers over the network mount only the directories that
// the operator lists, and never with more rights than listed.
func TestF3SharesAreMountedByName(t *testing.T) {
	dir := t.TempDir()
	shares, err := ParseShares("data=" + dir + "; models=" + dir + ":ro ;tmp=" + dir + ":cow;")
	if err != nil || len(shares) != 3 || shares["data"].ReadOnly || !shares["models"].ReadOnly || shares["tmp"].Source != dir {
		t.Fatalf("ParseShares: got %+v, %v", shares, err)
	}
	for _, text := range []string{"data", "=/x", "data=x", "data=/x;data=/y", "a b=/x", "data=:ro"} {
		if _, err := ParseShares(text); fault.CodeOf(err) != "mounts_invalid" {
			t.Errorf("ParseShares(%q): got error %v, want mounts_invalid", text, err)
		}
	}
	s := sandbox.Settings{Mounts: shares}
	remote := sandbox.Principal{KeyID: "key"}
	for _, c := range []struct {
		mount sandbox.Mount
		code  string
	}{
		{sandbox.Mount{Name: "data", Target: "/mnt/x"}, ""},
		{sandbox.Mount{Name: "none", Target: "/mnt/x"}, "mount_unknown"},
		{sandbox.Mount{Name: "data"}, "mounts_invalid"},
		{sandbox.Mount{Name: "data", Source: "/etc", Target: "/mnt/x"}, "mounts_invalid"},
		{sandbox.Mount{Source: dir, Target: "/mnt/x"}, "local_only"},
	} {
		req := sandbox.CreateRequest{Mounts: []sandbox.Mount{c.mount}}
		err := checkLocal(remote, req)
		if err == nil {
			_, err = rootfs.ResolveMounts(s, req.Mounts)
		}
		if err == nil != (c.code == "") || err != nil && fault.CodeOf(err) != c.code {
			t.Errorf("mount %+v: got error %v, want %q", c.mount, err, c.code)
		}
	}
	list, err := rootfs.ResolveMounts(s, []sandbox.Mount{{Name: "models", Target: "/mnt/m"}, {Name: "data", Target: "/mnt/d", ReadOnly: true}})
	if err != nil || !list[0].ReadOnly || !list[1].ReadOnly || list[0].Source == "" {
		t.Errorf("mounts of two shares: got %+v, %v; want both read-only", list, err)
	}
}
