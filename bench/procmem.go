package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sandboxProcesses are the host processes of a sandbox by role.
type sandboxProcesses struct {
	sentry, gofer int // gofer is 0 for a sandbox with a packed root, which needs no file server
	stubs         []int
}

// all returns the processes that there are.
func (p sandboxProcesses) all() []int {
	out := append(slices.Clone(p.stubs), p.sentry)
	if p.gofer > 0 {
		out = append(out, p.gofer)
	}
	return out
}

// engineRecord returns the engine's file about a sandbox. Earlier versions, which this program
// measures too, give it another name.
func engineRecord(state, id string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(state, "run", id, "sandbox.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return os.ReadFile(filepath.Join(state, "run", id, "box.json"))
	}
	return data, err
}

// processesOf reads a sandbox's processes from the engine's file, and finds their children, which
// run the sandbox's programs.
func processesOf(state, id string) (sandboxProcesses, error) {
	data, err := engineRecord(state, id)
	if err != nil {
		return sandboxProcesses{}, err
	}
	var record struct {
		Sentry, Gofer struct{ PID int }
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return sandboxProcesses{}, err
	}
	p := sandboxProcesses{sentry: record.Sentry.PID, gofer: record.Gofer.PID}
	if p.sentry <= 0 {
		return p, fmt.Errorf("the engine's file about sandbox %s names no processes", id)
	}
	all, err := descendants(p.sentry)
	p.stubs = all
	return p, err
}

// descendants returns the children of a process and their descendants.
func descendants(pid int) ([]int, error) {
	var out []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", queue[0]))
		if err != nil {
			return nil, err
		}
		for _, path := range tasks {
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a thread that ended after it was listed
			}
			if err != nil {
				return nil, err
			}
			for field := range strings.FieldsSeq(string(data)) {
				child, err := strconv.Atoi(field)
				if err != nil {
					return nil, err
				}
				out, queue = append(out, child), append(queue, child)
			}
		}
	}
	return out, nil
}

// memory is the proportional set size of processes in bytes: memory of one process counts in full,
// and memory that n processes share counts as one nth for each.
type memory struct {
	all   int64
	anon  int64 // the processes' private memory
	shmem int64 // the unnamed file with the sandbox's memory
	file  int64 // pages of programs on disk, which the kernel can drop
}

func (m *memory) add(o memory) {
	m.all += o.all
	m.anon += o.anon
	m.shmem += o.shmem
	m.file += o.file
}

// pssOf returns the memory of some processes together. gVisor's stubs share one address space, and
// each reports all of it, so it must count only once.
func pssOf(pids ...int) (memory, error) {
	var sum memory
	var counted []int
	for _, pid := range pids {
		if slices.ContainsFunc(counted, func(other int) bool { return sameMemory(pid, other) }) {
			continue
		}
		counted = append(counted, pid)
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return sum, err
		}
		one, err := parsePSS(string(data))
		if err != nil {
			return sum, fmt.Errorf("process %d: %w", pid, err)
		}
		sum.add(one)
	}
	return sum, nil
}

// sameMemory reports whether two processes have one address space. If the kernel does not report
// it, they count as two.
func sameMemory(a, b int) bool {
	const compareMemory = 1 // KCMP_VM
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), compareMemory, 0, 0, 0)
	return errno == 0 && order == 0
}

// parsePSS parses smaps_rollup.
func parsePSS(rollup string) (memory, error) {
	var m memory
	missing := map[string]*int64{"Pss:": &m.all, "Pss_Anon:": &m.anon, "Pss_Shmem:": &m.shmem, "Pss_File:": &m.file}
	for line := range strings.Lines(rollup) {
		fields := strings.Fields(line)
		if len(fields) == 0 || missing[fields[0]] == nil {
			continue
		}
		if len(fields) != 3 || fields[2] != "kB" {
			return m, fmt.Errorf("a line of smaps_rollup cannot be parsed: %q", line)
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return m, fmt.Errorf("a line of smaps_rollup cannot be parsed: %q", line)
		}
		*missing[fields[0]] = kb << 10
		delete(missing, fields[0])
	}
	if len(missing) > 0 {
		return m, errors.New("smaps_rollup lacks a line of Pss")
	}
	return m, nil
}

// charged returns the memory that the sandbox's control group is charged with, including cached
// file pages that it used first. It returns false without a control group.
func charged(pid int) (int64, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, false
	}
	for _, path := range memoryFiles(string(data)) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// memoryFiles returns the files that may have a process's charge, from the text of its
// /proc/PID/cgroup. The root group, "/", belongs to no sandbox.
func memoryFiles(cgroup string) []string {
	var out []string
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3 || parts[2] == "/":
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			out = append(out, filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.usage_in_bytes"))
		case parts[0] == "0":
			out = append(out, filepath.Join("/sys/fs/cgroup", parts[2], "memory.current"))
		}
	}
	return out
}
