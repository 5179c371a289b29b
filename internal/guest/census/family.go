package census

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Family returns the process with the given number, followed by all other
// processes that descend from it or are in its process group. The list is
// empty if there is no such process. Owner, arguments and program are not read.
func Family(proc string, root int) ([]Process, error) {
	all, err := stats(proc)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(p Process) bool { return p.PID == root })
	if at < 0 {
		return nil, nil
	}
	family, rest := []Process{all[at]}, slices.Delete(all, at, at+1)
	// A parent may have a larger number than its child, so each round looks at
	// all that is left.
	for known := map[int]bool{root: true}; ; {
		n := len(family)
		rest = slices.DeleteFunc(rest, func(p Process) bool {
			if !known[p.Parent] && p.Group != root {
				return false
			}
			known[p.PID] = true
			family = append(family, p)
			return true
		})
		if len(family) == n {
			return family, nil
		}
	}
}

// Members returns the processes of a process group.
func Members(proc string, group int) ([]Process, error) {
	all, err := stats(proc)
	return slices.DeleteFunc(all, func(p Process) bool { return p.Group != group }), err
}

// Between returns how much later b was started than a.
func Between(a, b Process) time.Duration {
	return time.Duration(int64(b.Start)-int64(a.Start)) * (time.Second / ticks)
}

// stats reads what the first file of each process tells.
func stats(proc string) ([]Process, error) {
	names, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err != nil || pid <= 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(proc, n.Name(), "stat"))
		if err != nil {
			continue // it has ended since
		}
		if p, _, ok := ParseStat(string(data)); ok {
			all = append(all, p)
		}
	}
	return all, nil
}
