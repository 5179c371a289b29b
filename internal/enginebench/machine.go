package enginebench

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the host, so that figures of two runs can be compared.
type Machine struct {
	CPUs        int    `json:"cpus"`
	Kernel      string `json:"kernel"`
	MemoryBytes int64  `json:"memory_bytes"`
	Load        string `json:"load"`
	Root        bool   `json:"root"`
}

func machine() *Machine {
	m := &Machine{CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if total, err := memoryField("MemTotal:"); err == nil {
		m.MemoryBytes = total
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}

// availableMemory returns the bytes that the host's kernel can give to programs without swapping.
func availableMemory() (int64, error) { return memoryField("MemAvailable:") }

// memoryField returns a field of /proc/meminfo in bytes.
func memoryField(name string) (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo has no field " + name)
}
