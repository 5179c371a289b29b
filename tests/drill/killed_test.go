package drill_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// runningDrill is a drill whose attack does not end.
type runningDrill struct {
	cmd   *exec.Cmd
	state string // of the drill's server
	// first is the first process in the drill's namespaces, and worker is its child.
	first, worker int
	// tree has the start of each process of the drill, with the gateway and sandboxes.
	tree map[int]string
	// spaces are the namespaces that exist only for the drill.
	spaces []string
	// sandboxes are the IDs of its sandboxes.
	sandboxes []string
	// resolvers counts the mounts on the host's resolv.conf before the drill.
	resolvers int
}

// startDrill starts a drill, and waits for its attack.
func startDrill(t *testing.T, engine string) *runningDrill {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	state := hosttest.ShortDir(t)
	d := &runningDrill{state: filepath.Join(state, "drill", "state"), resolvers: strings.Count(hostMounts(t), resolver)}
	d.cmd = exec.CommandContext(t.Context(), program, "--state", state, "--json", "drill", "--engine", engine, "--scenarios", "testdata", "--only", "endless")
	var errs servetest.Output
	d.cmd.Stderr = &errs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	// The positive control of every count below.
	hosttest.EventuallyNoError(t, func() error {
		var err error
		if d.first, err = childOf(d.cmd.Process.Pid); err != nil {
			return fmt.Errorf("%w: %s", err, errs.String())
		}
		if d.worker, err = childOf(d.first); err != nil {
			return err
		}
		interfaces, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", d.worker))
		if err != nil || !bytes.Contains(interfaces, []byte("drill0")) {
			return fmt.Errorf("the drill has no interface yet: %w", err)
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.worker))
		if err != nil || !bytes.Contains(mounts, []byte(" /etc/resolv.conf ")) {
			return fmt.Errorf("the drill has no resolver yet: %w", err)
		}
		var attacks bool
		if d.tree, attacks = treeOf(d.cmd.Process.Pid); !attacks {
			return fmt.Errorf("no sandbox of the drill runs among %v", d.tree)
		}
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
	if len(d.alive()) < 4 || len(d.inside(t)) < 2 {
		t.Fatalf("control: of the drill run %v and in its namespaces %v, want it, its first process, its worker and a sandbox", d.alive(), d.inside(t))
	}
	running := map[string]string{"gvisor": "run/[a-z0-9]*", "jail": "jail/[a-z0-9]*"}[engine]
	dirs, err := filepath.Glob(filepath.Join(d.state, running))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("control: no directory of a sandbox: %v", err)
	}
	for _, dir := range dirs {
		d.sandboxes = append(d.sandboxes, filepath.Base(dir))
	}
	if len(servetest.Groups(d.sandboxes...)) == 0 {
		t.Fatalf("control: no control group of the sandboxes %v", d.sandboxes)
	}
	return d
}

const resolver = " /etc/resolv.conf "

// hostMounts returns the mounts that the host has.
func hostMounts(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(mounts)
}

// treeOf returns the descendants of a process with the times of their starts, and whether the
// sandbox of the attack is among them: a jail's processes are visible on the host, and those in
// gVisor are not, but its kernel is.
func treeOf(pid int) (tree map[int]string, attacks bool) {
	tree = map[int]string{pid: startOf(pid)}
	for _, child := range childrenOf(pid) {
		below, found := treeOf(child)
		maps.Copy(tree, below)
		attacks = attacks || found
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	return tree, attacks || bytes.Equal(line, []byte("sleep\x00500\x00")) || bytes.HasPrefix(line, []byte("runsc-sandbox"))
}

// startOf returns the time of a process's start, or "" if it has ended.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if err != nil || len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

func childrenOf(pid int) (children []int) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // an error means a malformed pattern
	for _, file := range all {
		text, _ := os.ReadFile(file) // a thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// childOf returns the first child of a process.
func childOf(pid int) (int, error) {
	children := childrenOf(pid)
	if len(children) == 0 {
		return 0, fmt.Errorf("process %d has no child", pid)
	}
	return slices.Min(children), nil
}

// alive lists the processes of the drill that still run.
func (d *runningDrill) alive() (pids []int) {
	for pid, start := range d.tree {
		if start != "" && startOf(pid) == start {
			pids = append(pids, pid)
		}
	}
	return pids
}

// inside lists the processes in a namespace of the drill.
func (d *runningDrill) inside(t *testing.T) (found []string) {
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
		if in, left, n := d.inside(t), d.alive(), servetest.Processes(t, d.state); len(in) > 0 || len(left) > 0 || n > 0 {
			return fmt.Errorf("left: in the drill's namespaces %v, processes %v, and %d of sandboxes", in, left, n)
		}
		return nil
	})
	mounts := hostMounts(t)
	if n := strings.Count(mounts, resolver); n != d.resolvers {
		t.Errorf("the host has %d mounts on resolv.conf, before %d", n, d.resolvers)
	}
	for _, unwanted := range append([]string{d.state}, d.spaces...) {
		if strings.Contains(mounts, unwanted) {
			t.Errorf("the host has a mount of %s", unwanted)
		}
	}
	above := filepath.Dir(filepath.Dir(d.state))
	runDrillIn(t, above, "--engine", "wasm", "--only", "dns-label") // runs no attack
	servetest.NothingLeft(t, d.state, d.sandboxes...)
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
