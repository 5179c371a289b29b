package busy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// processes lists the host's processes.
func processes(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// niceValue returns the highest nice value of a process's threads.
func niceValue(pid int) (int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return 0, err
	}
	highest := -99 // below every nice value
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		nice, err := strconv.Atoi(fields[16]) // field 19 of the line
		if err != nil {
			return 0, err
		}
		highest = max(highest, nice)
	}
	if highest == -99 {
		return 0, fmt.Errorf("process %d has no threads", pid)
	}
	return highest, nil
}

// groupsOf lists the control groups of a process.
func groupsOf(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// weight returns the CPU weight of a sandbox's control group, in the units of the cgroup version.
func weight(t *testing.T, id string) int {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/crannog/%s/cpu.weight", "/sys/fs/cgroup/cpu*/crannog/%s/cpu.shares"} {
		found, err := filepath.Glob(fmt.Sprintf(pattern, id))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("sandbox %s has no group with a weight", id)
	return 0
}
