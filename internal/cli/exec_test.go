package cli

import (
	"strings"
	"testing"
)

// A user of --net none must not believe that a shell in an existing sandbox has no network.
func TestShellRejectsFlagsForNewSandbox(t *testing.T) {
	for _, flags := range []string{
		"--net none", "--allow a.example", "--level strict", "--policy p.yaml", "--artifact x", "--memory 1g", "--name n", "--ttl 5m",
		"--workspace .", "--no-workspace", "--template base", "--from s", "--on-end kill", "--wake", "--metadata a=b", "--disk 1g",
	} {
		flag, _, _ := strings.Cut(flags, " ")
		code, _, stderr := run(t, append([]string{"shell", "box"}, strings.Fields(flags)...)...)
		if code != codeInternal || !strings.Contains(stderr, "error: "+flag+" is for a new sandbox, but box already exists") || !strings.Contains(stderr, "code=usage") {
			t.Errorf("run(%s): got %d, %q", flags, code, stderr)
		}
	}
	for _, flags := range []string{"-e A=b", "-u root", "-w /tmp", "-t 5s", "-T", "--json", "-q"} {
		if _, _, stderr := run(t, append([]string{"shell", "box"}, strings.Fields(flags)...)...); !strings.Contains(stderr, "server_unreachable") {
			t.Errorf("run(%s): got %q", flags, stderr)
		}
	}
	if _, _, stderr := run(t, "shell", "box", "-e", "=x"); !strings.Contains(stderr, "is not NAME=VALUE") {
		t.Errorf("run: got %q", stderr)
	}
}
