package census

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Member is a process with its parent and its process group.
type Member struct {
	PID, Parent, Group int
	// Start is the time at which the process started, in the kernel's clock ticks.
	Start uint64
	// Zombie is set if the process has ended and its parent has not yet waited for it.
	Zombie bool
}

// Family returns the process root, followed by its descendants, the processes in the group that
// root leads, those for which belongs returns true, and their descendants. The list is empty if
// root does not exist. A nil belongs matches no process.
func Family(proc string, root int, belongs func(pid int) bool) ([]Member, error) {
	all, err := stats(proc)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(p Member) bool { return p.PID == root })
	if at < 0 {
		return nil, nil
	}
	family := []Member{all[at]}
	others := slices.Delete(all, at, at+1)
	// A parent may have a higher PID than its child, so each round checks all remaining
	// processes.
	for known := map[int]bool{root: true}; ; {
		n := len(family)
		others = slices.DeleteFunc(others, func(p Member) bool {
			if !known[p.Parent] && p.Group != root && (belongs == nil || !belongs(p.PID)) {
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

// Belonging returns the processes for which belongs returns true.
func Belonging(proc string, belongs func(pid int) bool) ([]Member, error) {
	all, err := stats(proc)
	return slices.DeleteFunc(all, func(p Member) bool { return !belongs(p.PID) }), err
}

// Members returns the processes of a process group.
func Members(proc string, group int) ([]Member, error) {
	all, err := stats(proc)
	return slices.DeleteFunc(all, func(p Member) bool { return p.Group != group }), err
}

// Between returns the time from the start of a to the start of b.
func Between(a, b Member) time.Duration {
	return time.Duration(int64(b.Start)-int64(a.Start)) * (time.Second / ticksPerSecond)
}

// stats reads the stat file of each process.
func stats(proc string) ([]Member, error) {
	names, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var all []Member
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err != nil || pid <= 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(proc, n.Name(), "stat"))
		if err != nil {
			continue // the process has ended
		}
		if m, ok := member(string(data)); ok {
			all = append(all, m)
		}
	}
	return all, nil
}

// member parses a line of /proc/PID/stat.
func member(stat string) (Member, bool) {
	p, _, ok := ParseStat(stat)
	if !ok {
		return Member{}, false
	}
	// Fields from the third one on. ParseStat has checked that the line has enough of them.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	group, err := strconv.Atoi(fields[2])
	return Member{PID: p.PID, Parent: p.Parent, Group: group, Start: p.Start, Zombie: fields[0] == "Z" || fields[0] == "X"}, err == nil
}
