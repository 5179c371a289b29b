// Package meminfo owns the memory figures that the host's kernel reports in /proc/meminfo.
package meminfo

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// Total returns the bytes of the host's memory.
func Total() (int64, error) { return read("/proc/meminfo", "MemTotal:") }

// Available returns the bytes that the host's kernel can give to programs without swapping. Unlike
// the memory of processes, it includes the kernel's own memory.
func Available() (int64, error) { return read("/proc/meminfo", "MemAvailable:") }

// read returns a field of a file such as /proc/meminfo in bytes.
func read(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New(path + " has no field " + strings.TrimSuffix(name, ":"))
}
