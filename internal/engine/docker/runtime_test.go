package docker

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/system"

	"github.com/crannog/crannog/internal/engine"
)

// The boundary of a sandbox follows from the runtime's name, so a name that does not fit the
// daemon's configuration is refused, and what runsc leaves out is named.
func TestRuntimeIsWhatItsNameSays(t *testing.T) {
	runtimes := map[string]system.RuntimeWithStatus{
		"runc":       {Runtime: system.Runtime{Path: "runc"}},
		"runsc":      {Runtime: system.Runtime{Path: "/usr/local/bin/runsc", Args: []string{"--oci-seccomp"}}},
		"runsc-open": {Runtime: system.Runtime{Path: "/usr/local/bin/runsc", Args: []string{"--platform=kvm"}}},
		"runsc-fake": {Runtime: system.Runtime{Path: "/usr/bin/runc"}},
		"hidden":     {Runtime: system.Runtime{Path: "/opt/runsc"}},
		"shim":       {Runtime: system.Runtime{Type: "io.containerd.runsc.v1"}},
	}
	for name, c := range map[string]struct {
		setting, usual, refused string
		warnings                []string
	}{
		"the default":                 {"", "runc", "", nil},
		"runsc":                       {"runsc", "runc", "", []string{"processes with runsc"}},
		"runsc without its flag":      {"runsc-open", "runc", "", []string{"seccomp of runsc", "processes with runsc", "platform of runsc"}},
		"another program named runsc": {"runsc-fake", "runc", "is the program runc and not gVisor's", nil},
		"runsc under another name":    {"hidden", "runc", "is gVisor's runsc under another name", nil},
		"a shim under another name":   {"shim", "runc", "is gVisor's runsc under another name", nil},
		"runsc as the default":        {"", "runsc", "default runtime runsc is gVisor's", nil},
		"a missing runtime":           {"kata", "runc", "has no runtime kata", nil},
		"a shim of containerd":        {"io.containerd.runsc.v1", "runc", "", nil},
	} {
		e := &Engine{o: Options{Runtime: c.setting}}
		info := system.Info{Runtimes: runtimes, DefaultRuntime: c.usual}
		findings := e.checkRuntime(info, e.runtime(info))
		refused := engine.Refusal(findings)
		if (refused == nil) != (c.refused == "") || refused != nil && !strings.Contains(refused.Error(), c.refused) {
			t.Errorf("%s: got %v, want a refusal with %q", name, refused, c.refused)
		}
		var warnings []string
		for _, f := range findings {
			if f.Result == engine.ResultWarn {
				warnings = append(warnings, f.Check)
			}
		}
		if strings.Join(warnings, ",") != strings.Join(c.warnings, ",") {
			t.Errorf("%s: warnings %q, want %q", name, warnings, c.warnings)
		}
	}
}

// gVisor has one error for all calls that a profile refuses, so the profile for runsc refuses no call
// with another one. Otherwise it is the usual profile.
func TestProfileOfRunsc(t *testing.T) {
	usual, other := profileFor("crun"), profileFor("runsc")
	if !strings.Contains(usual, `"errnoRet"`) {
		t.Fatal("control: the usual profile has no error of its own, so runsc needs no other profile")
	}
	var profiles [2]struct {
		DefaultAction string `json:"defaultAction"`
		Syscalls      []struct {
			Names  []string `json:"names"`
			Action string   `json:"action"`
		} `json:"syscalls"`
	}
	for i, text := range []string{usual, other} {
		if err := json.Unmarshal([]byte(text), &profiles[i]); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(other, "errnoRet") || profiles[1].DefaultAction != "SCMP_ACT_ERRNO" || len(profiles[0].Syscalls) != len(profiles[1].Syscalls) {
		t.Fatalf("the profile of runsc is %.300s", other)
	}
	for i, rule := range profiles[1].Syscalls {
		before := profiles[0].Syscalls[i]
		if !slices.Equal(rule.Names, before.Names) || rule.Action != before.Action && !slices.Equal(rule.Names, []string{"clone3"}) {
			t.Errorf("rule %d differs: %v %s, %v %s", i, before.Names, before.Action, rule.Names, rule.Action)
		}
	}
}
