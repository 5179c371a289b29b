package metrics

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is how many units of processor time the kernel counts in a second.
const ticks = 100

// memory is the used part of meminfo, in bytes.
type memory struct{ total, free, cache int64 }

func readMeminfo(name string) (memory, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			m.total = kib << 10
		case "MemFree:":
			m.free = kib << 10
		case "Buffers:", "Cached:":
			m.cache += kib << 10
		}
	}
	if m.total == 0 {
		return memory{}, fmt.Errorf("%s has no MemTotal", name)
	}
	m.cache = min(m.cache, m.total-m.free)
	return m, nil
}

// cpuTime sums the time of all processes, including dead ones, which are counted by the parents
// that waited for them, up to PID 1. It does not use a kernel's own sum, because the sandbox's
// kernel keeps none.
func cpuTime(proc string) (time.Duration, error) {
	stats, err := filepath.Glob(proc + "/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended since it was listed
		}
		if err != nil {
			return 0, err
		}
		sum += statTicks(string(data))
	}
	return time.Duration(sum) * (time.Second / ticks), nil
}

// statTicks adds the process's own time and that of its dead children. The program's name comes
// first and may contain anything, so counting begins after its last bracket.
func statTicks(stat string) int64 {
	const utime, cstime = 11, 14 // positions after the name
	_, rest, ok := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) <= cstime {
		return 0
	}
	var sum int64
	for _, field := range fields[utime : cstime+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		sum += n
	}
	return sum
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// groupMemory returns what the sandbox's cgroup counts, if it is visible inside: the total, and the
// page cache.
func groupMemory(dir string) (used, cache int64, ok bool) {
	for _, f := range []struct{ used, stat, key string }{
		{"memory.current", "memory.stat", "inactive_file"},
		{"memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"},
	} {
		data, err := os.ReadFile(filepath.Join(dir, f.used))
		if err != nil {
			continue
		}
		if used, err = strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err != nil {
			continue
		}
		data, _ = os.ReadFile(filepath.Join(dir, f.stat)) // without it the page cache is unknown
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) == 2 && fields[0] == f.key {
				cache, _ = strconv.ParseInt(fields[1], 10, 64)
			}
		}
		return used, cache, true
	}
	return 0, 0, false
}

// processMemory sums the private memory of processes.
func processMemory(proc string) (used int64, err error) {
	names, err := filepath.Glob(proc + "/[0-9]*/statm")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended since it was listed
		}
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(data))
		if len(fields) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(fields[1], 10, 64)
		shared, _ := strconv.ParseInt(fields[2], 10, 64)
		used += max(0, resident-shared) * int64(os.Getpagesize())
	}
	return used, nil
}
