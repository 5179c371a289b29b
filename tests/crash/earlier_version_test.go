package crash_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// P52, in short: the state directory of an earlier version is read. The program of commit bcd05c0
// wrote it (tests/upgrade/state.sh); tests/upgrade runs that program itself.
func TestReadsStateOfEarlierVersion(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", state, "-xzf", "testdata/state-bcd05c0.tar.gz").CombinedOutput(); err != nil {
		t.Fatalf("unpack the state directory: %v: %s", err, out)
	}
	server := servetest.Start(t, program, state)
	ctx, c := t.Context(), server.Local(t)
	runCommand := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(ctx, program, append([]string{"--state", state}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("crannog %q: %v: %s", args, err, out)
		}
	}

	paused, err := c.Get(ctx, "asleep")
	if err != nil {
		t.Fatal(err)
	}
	earlierList, err := os.ReadFile(filepath.Join(state, "list-of-before.json"))
	if err != nil {
		t.Fatal(err)
	}
	if info := paused.Info(); info.State != "paused" || !strings.Contains(string(earlierList), info.ID) {
		t.Errorf("the paused sandbox is %+v", info)
	}
	if snapshots, err := c.Snapshots(ctx, crannog.SnapshotOptions{}); err != nil || len(snapshots) != 1 || snapshots[0].Name != "flat" {
		t.Errorf("the snapshots are %+v %v", snapshots, err)
	}
	for request, decision := range map[string]string{"https://set.example.com/": "allow", "https://other.example.com/": "deny"} {
		// The command's exit code shows the decision.
		out, err := exec.CommandContext(ctx, program, "--state", state, "policy", "explain", "asleep", "GET", request).CombinedOutput()
		if !strings.HasPrefix(string(out), decision) || (err == nil) != (decision == "allow") {
			t.Errorf("the decision about %s: got %v %s, want %s", request, err, out, decision)
		}
	}
	if list, err := c.Secrets(ctx); err != nil || len(list) != 1 || list[0].Name != "TOKEN" {
		t.Errorf("the secrets are %+v %v", list, err)
	}
	if _, err := c.RotateSecretsKey(ctx); err != nil { // decrypts each secret
		t.Errorf("decrypt the secrets: %v", err)
	}
	key, err := os.ReadFile(filepath.Join(state, "key-of-before"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := crannog.New(crannog.URL(server.URL), crannog.Key(strings.TrimSpace(string(key))))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Snapshots(ctx, crannog.SnapshotOptions{}); err != nil {
		t.Errorf("a request with the earlier version's key: %v", err)
	}
	newSandbox, err := c.Create(ctx, crannog.Timeout(life))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := newSandbox.CommandContext(ctx, "echo", "fine").CombinedOutput(); err != nil || string(out) != "fine\n" {
		t.Errorf("a command in a new sandbox: %v %s", err, out)
	}
	runCommand("audit", "verify")
	runCommand("audit", "verify", "--against", filepath.Join(state, "checkpoint-of-before"))
}
