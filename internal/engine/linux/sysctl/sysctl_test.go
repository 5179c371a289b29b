package sysctl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/linux/sysctl"
)

func TestDenials(t *testing.T) {
	for _, c := range []struct {
		name, value string
		user, root  bool
	}{
		{sysctl.MaxUserNamespaces, "0", true, true},
		{sysctl.UserNamespacesClone, "0", true, false},
		{sysctl.AppArmorRestrictions, "1", true, false},
		{sysctl.MaxUserNamespaces, "1000", false, false},
		{sysctl.UserNamespacesClone, "1", false, false},
		{sysctl.AppArmorRestrictions, "not a number", false, false},
		{"kernel.other", "0", false, false},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, strings.ReplaceAll(c.name, ".", "/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for root, want := range map[bool]bool{false: c.user, true: c.root} {
			got := sysctl.Dir(dir).Denials(root)
			if (len(got) == 1) != want || len(got) > 1 {
				t.Errorf("%s=%s, root %v: %+v", c.name, c.value, root, got)
			}
			for _, d := range got {
				if d.Name != c.name || !strings.HasPrefix(d.Fix(), "sudo sysctl "+c.name+"=") {
					t.Errorf("%s=%s: the fix is %q", c.name, c.value, d.Fix())
				}
			}
		}
	}
}
