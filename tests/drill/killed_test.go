package drill_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// runningDrill is a drill whose attack does not end.
type runningDrill struct {
	cmd   *exec.Cmd
	state string // of the drill's server
	// first is the first process in the drill's namespaces, and worker is its child.
	first, worker int
	// spaces are the namespaces that exist only for the drill.
	spaces []string
}

// startDrill starts a drill, and waits for its attack.
func startDrill(t *testing.T, engine string) *runningDrill {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	state := hosttest.ShortDir(t)
	d := &runningDrill{state: filepath.Join(state, "drill", "state")}
	d.cmd = exec.CommandContext(t.Context(), program, "--state", state, "--json", "drill", "--engine", engine, "--scenarios", "testdata", "--only", "endless")
	var errs servetest.Output
	d.cmd.Stderr = &errs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	// The positive control of every count below.
	hosttest.EventuallyNoError(t, func() error {
		first, err := childOf(d.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("%w: %s", err, errs.String())
		}
		worker, err := childOf(first)
		if err != nil {
			return err
		}
		interfaces, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", worker))
		if err != nil || !bytes.Contains(interfaces, []byte("drill0")) {
			return fmt.Errorf("the drill has no interface yet: %w", err)
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", worker))
		if err != nil || !bytes.Contains(mounts, []byte(" /etc/resolv.conf ")) {
			return fmt.Errorf("the drill has no resolver yet: %w", err)
		}
		if servetest.Processes(t, d.state) == 0 || !attackRuns(worker) {
			return errors.New("the drill has no attack in a sandbox yet")
		}
		d.first, d.worker = first, worker
		return nil
	})
	for _, name := range []string{"net", "mnt", "pid"} {
		own, ownErr := os.Readlink("/proc/self/ns/" + name)
		space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", d.worker, name))
		if err = errors.Join(err, ownErr); err != nil || space == own {
			t.Fatalf("control: the drill's namespace is %q, that of the host %q: %v", space, own, err)
		}
		d.spaces = append(d.spaces, space)
	}
	if len(d.processes(t)) < 3 {
		t.Fatalf("control: the drill has the processes %v, want its first one, itself and those of a sandbox", d.processes(t))
	}
	return d
}

// childOf returns the only child of a process.
func childOf(pid int) (int, error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var found []string
	for _, file := range all {
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		found = append(found, strings.Fields(string(text))...)
	}
	if err != nil || len(found) == 0 {
		return 0, fmt.Errorf("process %d has no child: %w", pid, err)
	}
	return strconv.Atoi(found[0])
}

// attackRuns reports whether the attack's files exist, which the drill makes before the sandbox.
func attackRuns(worker int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", worker))
	return err == nil && bytes.Contains(line, []byte("--inside"))
}

// processes lists the processes in a namespace of the drill.
func (d *runningDrill) processes(t *testing.T) (found []string) {
	t.Helper()
	for _, space := range d.spaces {
		all, err := filepath.Glob("/proc/[0-9]*/ns/" + space[:strings.IndexByte(space, ':')])
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range all {
			if in, err := os.Readlink(file); err == nil && in == space {
				found = append(found, file)
			}
		}
	}
	return found
}

// requireGone waits until nothing of the drill runs. A network namespace without a process or a
// mount ends, and its interfaces with it. What is on the disk, the next drill removes.
func (d *runningDrill) requireGone(t *testing.T) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		if left, n := d.processes(t), servetest.Processes(t, d.state); len(left) > 0 || n > 0 {
			return fmt.Errorf("left in the drill's namespaces: %v, and %d processes of sandboxes", left, n)
		}
		return nil
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range append([]string{d.state, " /etc/resolv.conf "}, d.spaces...) {
		if bytes.Contains(mounts, []byte(unwanted)) && !bytes.Contains(hostMounts, []byte(unwanted)) {
			t.Errorf("the host has a mount of %s", unwanted)
		}
	}
	above := filepath.Dir(filepath.Dir(d.state))
	runDrillIn(t, above, "--engine", "wasm", "--only", "dns-label") // runs no attack
	if left, _ := filepath.Glob(filepath.Join(d.state, "run", "*")); len(left) > 0 || gvisortest.Groups(d.state) > hostGroups {
		t.Errorf("after the next drill: files %v, %d control groups, before %d", left, gvisortest.Groups(d.state), hostGroups)
	}
}

// What was there before a test.
var (
	hostMounts []byte
	hostGroups int
)

func countHost(t *testing.T) {
	t.Helper()
	var err error
	if hostMounts, err = os.ReadFile("/proc/self/mountinfo"); err != nil {
		t.Fatal(err)
	}
	hostGroups = gvisortest.Groups("/absent")
}

// P96: nothing of a drill outlives it, whichever of its processes is killed.
func TestKilledDrillLeavesNothing(t *testing.T) {
	type test struct{ engine, which string }
	tests := []test{{"gvisor", "parent"}}
	if hosttest.Full() {
		tests = []test{{"gvisor", "parent"}, {"gvisor", "first"}, {"gvisor", "worker"}, {"jail", "parent"}, {"jail", "first"}, {"jail", "worker"}}
	}
	for _, c := range tests {
		t.Run(c.engine+" "+c.which, func(t *testing.T) {
			countHost(t)
			d := startDrill(t, c.engine)
			pid := map[string]int{"parent": d.cmd.Process.Pid, "first": d.first, "worker": d.worker}[c.which]
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := d.cmd.Wait(); err == nil {
				t.Error("the killed drill ended with success")
			}
			d.requireGone(t)
		})
	}
}

// P96: SIGTERM to the process that the user started ends the drill in order: with the exit code of
// the signal, and without files of its attacks.
func TestTerminatedDrillLeavesNothing(t *testing.T) {
	countHost(t)
	d := startDrill(t, "jail")
	files := filepath.Join(filepath.Dir(d.state), "files", "attempt-*")
	if found, _ := filepath.Glob(files); len(found) == 0 {
		t.Fatal("control: the attack has no files")
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	if code := d.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d, want that of SIGTERM", code)
	}
	if found, _ := filepath.Glob(files); len(found) > 0 {
		t.Errorf("the drill left %v", found)
	}
	servetest.NothingLeft(t, d.state)
	d.requireGone(t)
}

// P96: the hidden flag does nothing in the namespaces of its parent, also where only lo is up. The
// test makes namespaces, so that a drill that does not refuse would not change the host.
func TestInsideRefusesNamespacesOfParent(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const script = `"$1" --state "$2" --json drill --inside --only dns-label $3; echo " code $?"; grep -c ' /etc/resolv.conf ' /proc/self/mountinfo; test -e "$2"/drill || echo untouched`
	for name, descriptors := range map[string]string{"none": "", "its own": "3< /dev/null 4< /proc/self/ns/net 5< /proc/self/ns/mnt"} {
		before, err := exec.CommandContext(t.Context(), "grep", "-c", " /etc/resolv.conf ", "/proc/self/mountinfo").Output()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(script, "$3", descriptors, 1), "sh", program, hosttest.ShortDir(t))
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("drill_not_separate")) || bytes.Contains(out, []byte(" code 0")) ||
			!bytes.HasSuffix(out, append(before, []byte("untouched\n")...)) {
			t.Errorf("descriptors: %s: %v %s, want a refusal, %q mounts and no files", name, err, out, before)
		}
	}
}
