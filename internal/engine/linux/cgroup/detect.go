package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// parentName is the directory that contains the groups of all servers.
const parentName = "crannog"

// serverGroup is the group for this process next to parentName, if one is needed.
const serverGroup = "crannog-server"

// requiredControllers lists the controllers without which a tree is not used.
var requiredControllers = []string{"memory", "cpu"}

// Detect finds a place where groups can be created that limit at least memory and CPU. The error
// states what is missing.
func Detect() (*Tree, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	defer mounts.Close()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	v2, v1 := parseMounts(mounts)
	var problems []error
	if v2 != "" {
		t, err := detectUnified(v2, ownUnified(string(own)))
		if err == nil {
			return t, nil
		}
		problems = append(problems, err)
	}
	if len(v1) > 0 {
		t, err := detectLegacy(v1)
		if err == nil {
			return t, nil
		}
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		problems = append(problems, errors.New("cgroup: no cgroup file system is mounted"))
	}
	return nil, joinLine(problems)
}

// joinLine joins the reasons to one line, for notes and findings.
func joinLine(problems []error) error {
	text := make([]string, len(problems))
	for i, p := range problems {
		text[i] = strings.TrimPrefix(p.Error(), "cgroup: ")
	}
	return errors.New(strings.Join(text, "; "))
}

// parseMounts returns the mount point of version 2 and those of the version 1 controllers.
func parseMounts(r io.Reader) (string, map[string]string) {
	v2, v1 := "", map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(tail) < 3 {
			continue
		}
		switch tail[0] {
		case "cgroup2":
			v2 = fields[4]
		case "cgroup":
			for option := range strings.SplitSeq(tail[2], ",") {
				if slices.Contains([]string{"memory", "cpu", "cpuacct", "pids", freezer}, option) {
					v1[option] = fields[4]
				}
			}
		}
	}
	return v2, v1
}

// ownUnified returns this process's group in version 2, from /proc/self/cgroup.
func ownUnified(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return "/"
}

// detectUnified tries the root group first, for a server that runs as root. Then it tries the
// groups between the root and our own, highest first, for a delegated subtree. Because of this
// order, commands of one user use the same groups wherever they were started.
func detectUnified(mount, own string) (*Tree, error) {
	if err := checkStartInto(); err != nil {
		return nil, err
	}
	var problems []error
	for _, base := range downTo(mount, own) {
		dir := filepath.Join(base, parentName)
		err := enable(base, dir)
		if errors.Is(err, unix.EBUSY) && base == filepath.Join(mount, own) {
			if err = leaveOwnGroup(base); err == nil {
				err = enable(base, dir)
			}
		}
		if err == nil {
			raiseServerWeight(base)
			return &Tree{unified: dir}, nil
		}
		problems = append(problems, err)
	}
	// An error about another user's group matters only if there is no other error.
	for _, err := range problems {
		if !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
	}
	return nil, problems[0]
}

// downTo lists the groups from the root to our own.
func downTo(mount, own string) []string {
	bases := []string{mount}
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean("/"+own), "/"), "/") {
		if name != "" {
			bases = append(bases, filepath.Join(bases[len(bases)-1], name))
		}
	}
	return bases
}

// enable creates the directory dir below a group, such that limited groups can be created in it.
func enable(base, dir string) error {
	const control, processes = "cgroup.subtree_control", "cgroup.procs"
	// A user who may create groups but not move processes between them cannot start anything in
	// them.
	for _, name := range []string{control, processes} {
		path := filepath.Join(base, name)
		if err := unix.Access(path, unix.W_OK); err != nil {
			return fmt.Errorf("cgroup: %w", &fs.PathError{Op: "write", Path: path, Err: err})
		}
	}
	have, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	for _, c := range requiredControllers {
		if !slices.Contains(strings.Fields(string(have)), c) {
			return fmt.Errorf("cgroup: controller %s is not available in %s", c, base)
		}
	}
	controllers := "+memory +cpu"
	if slices.Contains(strings.Fields(string(have)), "pids") {
		controllers += " +pids"
	}
	if err := write(filepath.Join(base, control), controllers); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := write(filepath.Join(dir, control), controllers); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// leaveOwnGroup moves this process into a group below its own. Except at the root, a version 2
// group cannot have both processes and groups with limits, and a service manager starts a service
// directly in its delegated group. Other processes in the group are not moved.
func leaveOwnGroup(own string) error {
	for _, pid := range numbers(filepath.Join(own, "cgroup.procs")) {
		if pid != os.Getpid() {
			return fmt.Errorf("cgroup: process %d is in %s too, which therefore can have no groups with limits", pid, own)
		}
	}
	serverDir := filepath.Join(own, serverGroup)
	if err := os.Mkdir(serverDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := write(filepath.Join(serverDir, "cgroup.procs"), "0"); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// raiseServerWeight raises the weight of our own group above that of the sandboxes, if we created
// it. Otherwise the group does not exist or belongs to another user.
func raiseServerWeight(base string) {
	// After an error the group keeps the usual weight, which all sandboxes together have as well.
	_ = setUnifiedWeight(filepath.Join(base, serverGroup), serverWeight)
}

// detectLegacy finds the controllers of version 1 in which this process can create groups.
func detectLegacy(mounts map[string]string) (*Tree, error) {
	t := &Tree{legacy: map[string]string{}}
	for controller, mount := range mounts {
		dir := filepath.Join(mount, parentName)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			if slices.Contains(requiredControllers, controller) {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			continue
		}
		if err := checkWritable(dir); err != nil {
			if slices.Contains(requiredControllers, controller) {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			continue
		}
		if controller == freezer {
			t.freezer = dir
			continue
		}
		t.legacy[controller] = dir
	}
	for _, c := range requiredControllers {
		if t.legacy[c] == "" {
			return nil, fmt.Errorf("cgroup: controller %s is not mounted", c)
		}
	}
	return t, nil
}

// checkWritable returns an error if a group that another program created cannot be used.
func checkWritable(dir string) error {
	probe, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return fmt.Errorf("%s is not writable by this user", dir)
	}
	return os.Remove(probe)
}
