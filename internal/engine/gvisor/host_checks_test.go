package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/sysctl"
)

// settings creates a directory of sysctls with some settings.
func settings(t *testing.T, values map[string]string) sysctls {
	t.Helper()
	dir := t.TempDir()
	for name, value := range values {
		path := filepath.Join(dir, strings.ReplaceAll(name, ".", "/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return sysctls{sysctl.Dir(dir)}
}

func TestKernelVersionIsChecked(t *testing.T) {
	for release, want := range map[string]engine.Result{
		"6.18.44-fc": engine.ResultOK, "4.14.0": engine.ResultOK, "5.4": engine.ResultOK,
		"4.13.9": engine.ResultFail, "3.10.0-1160.el7": engine.ResultFail, "unknown": engine.ResultWarn,
	} {
		if got := checkRelease(release); got.Result != want || !strings.Contains(got.Detail, release) {
			t.Errorf("%s: got %+v, want the result %v", release, got, want)
		}
	}
	if got := checkKernel(); got.Result != engine.ResultOK {
		t.Errorf("this host's kernel: got %+v", got)
	}
}

// Each setting that prevents sandboxes without root is found, and the fix names it. As root none of
// them matters.
func TestRestrictedUserNamespacesAreFound(t *testing.T) {
	for _, c := range []struct {
		setting, value  string
		users, appArmor bool // which check fails
	}{
		{sysctl.MaxUserNamespaces, "0", true, false},
		{sysctl.UserNamespacesClone, "0", true, false},
		{sysctl.AppArmorRestrictions, "1", false, true},
		{sysctl.MaxUserNamespaces, "1000", false, false},
		{sysctl.UserNamespacesClone, "1", false, false},
		{sysctl.AppArmorRestrictions, "0", false, false},
		{sysctl.AppArmorRestrictions, "not a number", false, false},
		{"kernel.other", "0", false, false},
	} {
		s := settings(t, map[string]string{c.setting: c.value})
		for check, one := range map[string]struct {
			got   engine.Finding
			fails bool
		}{"user namespaces": {s.checkUserNamespaces(true), c.users}, "apparmor": {s.checkAppArmor(true), c.appArmor}} {
			if failed := one.got.Result == engine.ResultFail; failed != one.fails || one.got.Check != check {
				t.Errorf("%s=%s: got %+v, want failed %v", c.setting, c.value, one.got, one.fails)
			} else if failed && (!strings.Contains(one.got.Fix, c.setting+"=") || one.got.Code != "user_namespaces_unavailable") {
				t.Errorf("%s=%s: got the fix %q and the code %q", c.setting, c.value, one.got.Fix, one.got.Code)
			}
		}
		for _, got := range []engine.Finding{s.checkUserNamespaces(false), s.checkAppArmor(false)} {
			if got.Result != engine.ResultOK {
				t.Errorf("%s=%s, as root: got %+v", c.setting, c.value, got)
			}
		}
		hint := s.userNamespaceHint()
		if named := strings.Contains(hint, "sysctl -w "+c.setting+"="); named != (c.users || c.appArmor) {
			t.Errorf("%s=%s: got the hint %q", c.setting, c.value, hint)
		}
	}
}

func TestDisabledPtraceIsFound(t *testing.T) {
	for value, want := range map[string]engine.Result{"0": engine.ResultOK, "2": engine.ResultOK, "3": engine.ResultFail} {
		if got := settings(t, map[string]string{sysctl.PtraceScope: value}).checkTracing(); got.Result != want {
			t.Errorf("%s=%s: got %+v, want the result %v", sysctl.PtraceScope, value, got, want)
		}
	}
	if got := settings(t, nil).checkTracing(); got.Result != engine.ResultOK {
		t.Errorf("a kernel without the setting: got %+v", got)
	}
}
