package record_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// smallState returns a state directory with its own file system, which has room for the embedded
// programs and for little else.
func smallState(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	if err := unix.Mount("crannog-state-test", state, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=320m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return state
}

// free returns how many bytes a directory's file system has left.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// P50, S2: a sandbox that fills the disk of the state directory, and takes whatever becomes free,
// can prevent neither removals by callers nor the work of other sandboxes.
func TestS2FullDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := smallState(t)
	s := servetest.Start(t, program, state)
	client, local := s.Client(t), s.Local(t)
	create := func() *crannog.Sandbox {
		t.Helper()
		sb, err := client.Create(t.Context(), crannog.Timeout(life))
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	// One of these limits is below the disk's size; two exceed it.
	greedy := crannog.Limits(api.Limits{DiskBytes: 4 << 30})
	var writers []*crannog.Sandbox
	for range 2 {
		sb, err := client.Create(t.Context(), crannog.Timeout(life), greedy)
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, sb)
	}
	other := create()
	must(t, other, "true")         // creates the file for the output of its commands
	var removed []*crannog.Sandbox // removed by the command line, the API, and E2B's API
	for range 3 {
		removed = append(removed, create())
	}
	if out, err := exec.Command(program, "snapshot", other.ID(), "--name", "kept", "--state", state).CombinedOutput(); err != nil {
		t.Fatalf("snapshot: %v %s", err, out)
	}
	if out, err := exec.Command("sh", "-c", "printf 0123456789abcdef | "+program+" secret set GONE --state "+state).CombinedOutput(); err != nil {
		t.Fatalf("secret: %v %s", err, out)
	}
	for _, writer := range writers {
		must(t, writer, "(while :; do cat /dev/zero >> /tmp/fill$$; sleep 0.01; done) < /dev/null > /dev/null 2>&1 &")
	}
	full := func() bool { return free(t, state) < 1<<20 }
	hosttest.Eventually(t, "the disk is full", full)

	// Other sandboxes continue to work.
	for range 20 {
		res, err := other.Exec(hosttest.Context(t), api.Exec{Cmd: []string{"echo", "here"}})
		if err != nil || res.Stdout != "here\n" {
			t.Fatalf("a command in another sandbox: %v %+v\n%s", err, res, s.Stderr())
		}
	}
	// Nothing new may start.
	if sb, err := client.Create(hosttest.Context(t), crannog.Timeout(life)); err == nil {
		t.Errorf("a sandbox was created on a full disk")
		kill(t, sb)
	}
	if !full() {
		t.Errorf("control: the disk has %d bytes left, want it full", free(t, state))
	}
	// Every removal works while the writer keeps writing.
	cli := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(program, append(args, "--state", state)...).CombinedOutput(); err != nil {
			t.Errorf("crannog %v: %v\n%s", args, err, out)
		}
	}
	cli("snapshot", "rm", "kept")
	cli("secret", "rm", "GONE")
	cli("rm", removed[0].ID())
	if err := removed[1].Kill(hosttest.Context(t)); err != nil {
		t.Errorf("remove a sandbox by the API: %v", err)
	}
	req, err := http.NewRequestWithContext(hosttest.Context(t), http.MethodDelete, s.URL+"/sandboxes/"+removed[2].ID(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", s.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("E2B's kill: %s", resp.Status)
	}
	cli("rm", "--all", "--yes")
	hosttest.EventuallyAtMost(t, "processes", 0, func() int { return servetest.Processes(t, state) })
	list, err := local.List(t.Context(), crannog.ListOptions{})
	if err != nil || len(list) > 0 {
		t.Errorf("sandboxes are left: %v, %v", list, err)
	}
	for _, writer := range writers {
		if _, err := os.Stat(filepath.Join(state, "run", writer.ID())); !os.IsNotExist(err) {
			t.Errorf("the files of a writer are left: %v", err)
		}
	}
	// New sandboxes can start again.
	hosttest.EventuallyNoError(t, func() error {
		again, err := client.Create(t.Context(), crannog.Timeout(life))
		if err == nil {
			kill(t, again)
		}
		return err
	})
	s.Stop(t)
	runProgram(t, state, "audit", "verify")
}
