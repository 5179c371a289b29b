// Package census owns the list of a sandbox's processes and listening ports, as the sandbox's own
// kernel reports them.
package census

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of a census. Programs in the sandbox control the number of processes and their names.
const (
	MaxProcesses = 1024
	MaxPorts     = 256
	maxArgs      = 64
	maxText      = 1 << 10 // bytes of the arguments of one process
	// MaxBytes is an upper bound for the size of an encoded census.
	MaxBytes = 16 << 20
)

// Process is one process of a sandbox.
type Process struct {
	PID    int      `json:"pid"`
	Parent int      `json:"parent"`
	UID    uint32   `json:"uid"`
	User   string   `json:"user,omitempty"`
	Args   []string `json:"args"`
	// CPU is the processor time that the process has used so far.
	CPU    time.Duration `json:"cpu_ns"`
	Memory int64         `json:"memory"` // resident bytes
	// Start is the time at which the process started, in the kernel's clock ticks. PID and Start
	// together identify a process, because the kernel reuses PIDs.
	Start uint64 `json:"start"`
	// Requested is set if a caller started the process through the API, under Tag. Terminal is set
	// if the caller requested a terminal.
	Requested bool   `json:"asked,omitempty"`
	Terminal  bool   `json:"terminal,omitempty"`
	Cols      uint16 `json:"cols,omitempty"`
	Rows      uint16 `json:"rows,omitempty"`
	Tag       string `json:"tag,omitempty"`
	// Command is the command that the process belongs to. It is nil if it is unknown: for the guest
	// itself, and on a kernel that does not support process marks.
	Command *Command `json:"command,omitempty"`
}

// Command is a command that a caller started, or a worker of the code interpreter. It may have
// ended, and the kernel may have given its PID to another process.
type Command struct {
	PID  int      `json:"pid"`
	Args []string `json:"args"`
	Tag  string   `json:"tag,omitempty"`
	// Ended is set if the command has ended and only its background processes still run.
	Ended bool `json:"ended,omitempty"`
}

// maxCommand limits the size of a command's arguments in a census.
const maxCommand = 256

// Shorten cuts the arguments of a command to the part that identifies it.
func (c *Command) Shorten() {
	c.Args, c.Tag = shortened(c.Args, maxCommand), strings.Clone(shorten(c.Tag, maxCommand))
}

// shortened returns a copy of the first arguments, up to limit bytes in total.
func shortened(args []string, limit int) []string {
	out := []string{}
	for i, arg := range args {
		if limit <= 0 || i == maxArgs {
			return append(out, "…")
		}
		// Clone, so that the rest of the string can be freed.
		out = append(out, strings.Clone(shorten(text(arg), limit)))
		limit -= len(arg)
	}
	return out
}

// Census is the list of processes and listeners at one point in time.
type Census struct {
	Processes []Process `json:"processes"` // ascending by PID
	Ports     []int     `json:"ports"`     // ascending
	// Cut is set if the list is incomplete because a limit was reached.
	Cut bool `json:"cut,omitempty"`
}

// Bound truncates a list that exceeds the limits of Take. An attacker who is root in a sandbox may
// have replaced the program that answers.
func (c *Census) Bound() {
	if len(c.Processes) > MaxProcesses {
		c.Processes, c.Cut = c.Processes[:MaxProcesses], true
	}
	if len(c.Ports) > MaxPorts {
		c.Ports, c.Cut = c.Ports[:MaxPorts], true
	}
	for i := range c.Processes {
		p := &c.Processes[i]
		p.User, p.Tag = shorten(p.User, maxText), shorten(p.Tag, maxText)
		p.CPU, p.Memory = max(0, p.CPU), max(0, p.Memory)
		if p.Command != nil {
			p.Command.Shorten()
		}
		if len(p.Args) > maxArgs+1 {
			p.Args = p.Args[:maxArgs+1]
		}
		left := maxText + len("…")
		for j, arg := range p.Args {
			if left <= 0 {
				p.Args = p.Args[:j]
				break
			}
			p.Args[j] = shorten(arg, left)
			left -= len(arg)
		}
	}
}

// shorten truncates s at a character boundary.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// Signal is a request to signal a process.
type Signal struct {
	PID    int `json:"pid"`
	Signal int `json:"signal"`
}

// ticksPerSecond is the number of clock ticks per second (USER_HZ).
const ticksPerSecond = 100

// Take reads the processes from a proc file system. It skips processes that end while it reads.
func Take(proc string) (Census, error) {
	c := Census{Processes: []Process{}, Ports: []int{}}
	names, err := os.ReadDir(proc)
	if err != nil {
		return c, err
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if len(c.Processes) == MaxProcesses {
			c.Cut = true
			break
		}
		if p, ok := read(proc, pid); ok {
			c.Processes = append(c.Processes, p)
		}
	}
	for _, l := range listeners(proc) {
		c.Ports = append(c.Ports, int(l.Port()))
	}
	slices.Sort(c.Ports)
	c.Ports = slices.Compact(c.Ports)
	if len(c.Ports) > MaxPorts {
		c.Ports, c.Cut = c.Ports[:MaxPorts], true
	}
	return c, nil
}

// read reads one process. It returns false if the process has ended.
func read(proc string, pid int) (Process, bool) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, false
	}
	p, name, ok := ParseStat(string(stat))
	if !ok || p.PID != pid {
		return Process{}, false
	}
	if info, err := os.Stat(dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			p.UID = st.Uid
		}
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, false
	}
	if p.Args = arguments(line); len(p.Args) == 0 {
		p.Args = []string{"[" + text(name) + "]"} // as ps shows a process without arguments
	}
	return p, true
}

// ParseStat parses a line of /proc/PID/stat. The second field is the program's name, which may
// contain any character, so parsing continues after the last parenthesis.
func ParseStat(stat string) (p Process, name string, ok bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, "", false
	}
	// Indices of the fields, counted from the third field of the line.
	const parent, user, system, start, resident = 1, 11, 12, 19, 21
	fields := strings.Fields(stat[end+1:])
	if len(fields) <= resident {
		return p, "", false
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	if err != nil || pid <= 0 {
		return p, "", false
	}
	p = Process{
		PID: pid, Parent: int(min(number(fields[parent]), 1<<31-1)),
		CPU:    time.Duration(min(number(fields[user])+number(fields[system]), 1<<40)) * (time.Second / ticksPerSecond),
		Start:  uint64(number(fields[start])),
		Memory: min(number(fields[resident]), 1<<40) * int64(os.Getpagesize()),
	}
	p.CPU = max(0, p.CPU)
	return p, stat[open+1 : end], true
}

// arguments splits and truncates a command line.
func arguments(line []byte) []string {
	line = bytes.TrimRight(line, "\x00")
	if len(line) == 0 {
		return nil
	}
	var out []string
	left := maxText
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		if len(out) == maxArgs || left <= 0 {
			return append(out, "…")
		}
		cut := min(len(arg), left)
		left -= cut + 1
		shown := text(string(arg[:cut]))
		if cut < len(arg) {
			shown += "…"
		}
		out = append(out, shown)
	}
	return out
}

// text returns the input with invalid bytes replaced.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
