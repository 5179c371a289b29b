package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// host describes the machine and its load, without which figures mean little.
type host struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Kernel string `json:"kernel"`
	Memory string `json:"memory"`
	Load   string `json:"load"`
	Root   bool   `json:"root"`
}

// describeHost returns the state of this machine.
func describeHost() host {
	h := host{CPUs: runtime.NumCPU(), Load: loadAverage(), Root: os.Geteuid() == 0}
	h.Model = fieldOf("/proc/cpuinfo", "model name")
	h.Memory = fieldOf("/proc/meminfo", "MemTotal")
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		h.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return h
}

// printHost prints the first line of a report.
func (r *report) printHost() {
	h := r.Host
	fmt.Fprintf(r.live, "%d × %s, %s, Linux %s, load %s, root %t\n", h.CPUs, h.Model, h.Memory, h.Kernel, h.Load, h.Root)
}

// fieldOf returns the first value of a name in a file of "name: value" lines,
// or "unknown".
func fieldOf(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// loadAverage returns the load of the last minute, or "unknown".
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) == 0 {
		return "unknown"
	}
	return fields[0]
}

// found reports whether a program for comparison is available.
func found(program string) bool {
	_, err := exec.LookPath(program)
	return program != "" && err == nil
}
