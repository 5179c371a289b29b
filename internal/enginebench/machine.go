package enginebench

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/meminfo"
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
	if total, err := meminfo.Total(); err == nil {
		m.MemoryBytes = total
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}
