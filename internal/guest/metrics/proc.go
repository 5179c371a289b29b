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

// ticksPerSecond is the number of clock ticks per second (USER_HZ).
const ticksPerSecond = 100

// memory is the part of meminfo that is used, in bytes.
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

// cpuTime returns the sum over all processes, including ended ones, whose time the kernel adds to
// the parent that waited for them, up to PID 1. The sandbox's kernel has no total of its own.
func cpuTime(proc string) (time.Duration, error) {
	stats, err := filepath.Glob(proc + "/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended after the listing
		}
		if err != nil {
			return 0, err
		}
		sum += statTicks(string(data))
	}
	return time.Duration(sum) * (time.Second / ticksPerSecond), nil
}

// statTicks returns the time of a process and of its ended children. The program's name precedes
// the numbers and may contain any character, so parsing begins after the last parenthesis.
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

// groupMemory returns the memory and the page cache of the sandbox's cgroup, if that is visible
// inside.
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

// processMemory returns the sum of the private memory of all processes.
func processMemory(proc string) (used int64, err error) {
	names, err := filepath.Glob(proc + "/[0-9]*/statm")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended after the listing
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
