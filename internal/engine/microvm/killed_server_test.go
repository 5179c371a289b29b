package microvm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/microvm/microvmtest"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Variables of a test process that acts as a server: its state directory, and the state from which it
// replaces the sandbox. Without a state it creates the sandbox.
const (
	serverVariable = "MICROVM_TEST_SERVER"
	stateVariable  = "MICROVM_TEST_STATE"
)

// killedID is the ID of the sandbox of a server that is killed.
const killedID = "killed"

// specOf returns the specification of the sandbox of a server that is killed.
func specOf(t testing.TB, renew guest.Renewal) engine.Spec {
	t.Helper()
	config := fmt.Sprintf(`{"sandbox_id":%q,"access_token":"a","control_token":"c","default_user":"user","renew":%q}`, killedID, renew)
	return engine.Spec{ID: killedID, Hostname: "box", Image: image(t).OCI(), Limits: engine.Limits{MemoryBytes: 256 << 20, MilliCPU: 1000}, Boot: engine.Boot{Config: []byte(config)}}
}

// TestServer is the server that TestKilledServer kills.
func TestServer(t *testing.T) {
	dir := os.Getenv(serverVariable)
	if dir == "" {
		t.Skip("TestKilledServer starts it")
	}
	e := open(false)(t, dir)
	if state := os.Getenv(stateVariable); state != "" {
		if err := e.(engine.Checkpointer).Replace(context.Background(), specOf(t, guest.RolledBack), state); err != nil {
			t.Error(err)
		}
		return
	}
	if err := e.Create(context.Background(), specOf(t, "")); err != nil {
		t.Error(err)
	}
	select {}
}

// exists reports whether a file that matches a pattern exists and is not empty.
func exists(t *testing.T, pattern string) bool {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			return true
		}
	}
	return false
}

// killWhen starts a server and kills it when a file exists.
func killWhen(t *testing.T, dir, state, pattern string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestServer$")
	cmd.Env = append(os.Environ(), serverVariable+"="+dir, stateVariable+"="+state, sharedVariable+"="+shared.dir)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the server is at this step", func() bool { return exists(t, pattern) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// wantNothing checks that no process, control group or file of the sandbox is left.
func wantNothing(t *testing.T, dir string) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		left := microvmtest.Residue(t, dir)
		files, err := filepath.Glob(filepath.Join(dir, "microvm", "[a-z]*"))
		if err != nil || left["keepers"]+left["machines"]+left["groups"]+len(files) > 0 {
			return fmt.Errorf("left: %v, %v, %v", left, files, err)
		}
		return nil
	})
}

// P57: a server that is killed while it creates a sandbox leaves one that List returns and Remove
// removes, whatever the step.
func TestKilledServer(t *testing.T) {
	if !hosttest.Full() {
		t.Skip("make test-microvm runs it")
	}
	image(t)
	dir := t.TempDir()
	sandbox := filepath.Join(dir, "microvm", killedID)
	for _, step := range []string{"", "/sandbox.json", "/machine"} {
		killWhen(t, dir, "", sandbox+step)
		e := open(false)(t, dir)
		list, err := e.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != killedID {
			t.Errorf("killed when %s exists: List returned %+v, %v", step, list, err)
		}
		if err := e.Remove(t.Context(), killedID); err != nil {
			t.Error(err)
		}
		wantNothing(t, dir)
	}
}

// A server that is killed while it replaces a sandbox leaves the sandbox running, and the next one
// removes the incomplete replacement.
func TestKilledServerDuringReplacement(t *testing.T) {
	if !hosttest.Full() {
		t.Skip("make test-microvm runs it")
	}
	image(t)
	dir, saved := t.TempDir(), t.TempDir()
	e := open(false)(t, dir)
	if err := e.Create(t.Context(), specOf(t, "")); err != nil {
		t.Fatal(err)
	}
	if err := e.(engine.Checkpointer).Checkpoint(t.Context(), killedID, saved); err != nil {
		t.Fatal(err)
	}
	before := microvmtest.Machine(t, dir, killedID)
	for _, step := range []string{"", "/sandbox.json", "/machine"} {
		killWhen(t, dir, saved, filepath.Join(dir, "microvm", "replacing-*")+step)
		e = open(false)(t, dir)
		if list, err := e.List(t.Context()); err != nil || len(list) != 1 || list[0].State != engine.Running {
			t.Errorf("killed when %s exists: List returned %+v, %v", step, list, err)
		}
		if exists(t, filepath.Join(dir, "microvm", "replacing-*")) {
			t.Errorf("killed when %s exists: the next server leaves the replacement", step)
		}
		// The sandbox stood still while the server replaced it, and can be saved only if it continues.
		if err := e.(engine.Checkpointer).Checkpoint(t.Context(), killedID, t.TempDir()); err != nil {
			t.Errorf("killed when %s exists: %v", step, err)
		}
	}
	if now := microvmtest.Machine(t, dir, killedID); now != before {
		t.Errorf("the sandbox has another machine, %d instead of %d: the server was killed too late", now, before)
	}
	if err := e.Remove(t.Context(), killedID); err != nil {
		t.Error(err)
	}
	wantNothing(t, dir)
}
