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
)

// parentName is the directory below which all groups of all servers live.
const parentName = "crannog"

var wanted = []string{"memory", "cpu"}

// Detect finds where groups can be made. The error says what is missing and
// is nil only if at least memory and CPU can be limited.
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

// joinLine puts the reasons on one line, for notes and check-ups.
func joinLine(problems []error) error {
	text := make([]string, len(problems))
	for i, p := range problems {
		text[i] = strings.TrimPrefix(p.Error(), "cgroup: ")
	}
	return errors.New(strings.Join(text, "; "))
}

// parseMounts returns the mount point of version 2 and those of the version 1
// controllers.
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
				if slices.Contains([]string{"memory", "cpu", "cpuacct", "pids"}, option) {
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

// detectUnified tries the top first (a server with the whole machine), then
// the parent of our own group and our own group (a delegated subtree).
func detectUnified(mount, own string) (*Tree, error) {
	var problems []error
	for _, base := range []string{mount, filepath.Join(mount, filepath.Dir(own)), filepath.Join(mount, own)} {
		dir := filepath.Join(base, parentName)
		err := enable(base, dir)
		if err == nil {
			return &Tree{unified: dir}, nil
		}
		problems = append(problems, err)
	}
	return nil, problems[0]
}

func enable(base, dir string) error {
	have, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	for _, c := range wanted {
		if !slices.Contains(strings.Fields(string(have)), c) {
			return fmt.Errorf("cgroup: controller %s is not available in %s", c, base)
		}
	}
	control := "+memory +cpu"
	if slices.Contains(strings.Fields(string(have)), "pids") {
		control += " +pids"
	}
	if err := write(filepath.Join(base, "cgroup.subtree_control"), control); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := write(filepath.Join(dir, "cgroup.subtree_control"), control); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

func detectLegacy(mounts map[string]string) (*Tree, error) {
	t := &Tree{legacy: map[string]string{}}
	for controller, mount := range mounts {
		dir := filepath.Join(mount, parentName)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			if slices.Contains(wanted, controller) {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			continue
		}
		if err := writable(dir); err != nil {
			if slices.Contains(wanted, controller) {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			continue
		}
		t.legacy[controller] = dir
	}
	for _, c := range wanted {
		if t.legacy[c] == "" {
			return nil, fmt.Errorf("cgroup: controller %s is not mounted", c)
		}
	}
	return t, nil
}

// writable finds out whether a group that somebody else made can be used.
func writable(dir string) error {
	probe, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return fmt.Errorf("%s is not writable by this user", dir)
	}
	return os.Remove(probe)
}
