// Package cgroup owns the control groups that limit a sandbox on the host: one group per sandbox in
// each hierarchy that the host has, version 1 or 2.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// Tree is the place where this process can create groups.
type Tree struct {
	unified string            // parent directory in version 2, or ""
	legacy  map[string]string // controller → parent directory in version 1
	freezer string            // directory of the controller freezer in version 1, or ""
}

// Group is the control group of one sandbox. It is stored as its directories, so that any process
// can find it again.
type Group struct {
	// Dirs maps a controller to its directory. Version 2 has the single key "unified".
	Dirs map[string]string `json:"dirs"`
}

// unified is the key for version 2, whose one hierarchy has all controllers.
const unified = "unified"

// hostPIDs bounds host tasks per sandbox. The sandbox's own kernel bounds the processes in it, so
// this limit only stops an engine that itself starts too many. A small number would break the
// engine, because its threads count too.
const hostPIDs = 16384

// Enforces lists the limits that groups of this tree enforce.
func (t *Tree) Enforces() []engine.Limit {
	if t == nil {
		return nil
	}
	if t.unified != "" {
		return []engine.Limit{engine.LimitMemory, engine.LimitCPU}
	}
	var out []engine.Limit
	if t.legacy["memory"] != "" {
		out = append(out, engine.LimitMemory)
	}
	if t.legacy["cpu"] != "" {
		out = append(out, engine.LimitCPU)
	}
	return out
}

// Version returns 1 or 2.
func (t *Tree) Version() int {
	if t.unified != "" {
		return 2
	}
	return 1
}

// String describes where the groups are created.
func (t *Tree) String() string {
	if t.unified != "" {
		return "version 2, below " + t.unified
	}
	return "version 1, below " + t.legacy["memory"] + " and others"
}

// Create makes the group of a sandbox and sets its limits. After an error, no part of it remains.
func (t *Tree) Create(id string, limits engine.Limits) (*Group, error) {
	return t.CreateFor(id, limits, hostPIDs)
}

// CreateFor is like Create with a limit for the tasks of the group. It is for engines whose
// sandboxes run as processes of the host. Such a group can be frozen if Freezes reports it.
func (t *Tree) CreateFor(id string, limits engine.Limits, tasks int64) (_ *Group, err error) {
	g := &Group{Dirs: map[string]string{}}
	defer func() {
		if err != nil {
			_ = g.Remove()
		}
	}()
	if t.unified != "" {
		dir := filepath.Join(t.unified, id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		g.Dirs[unified] = dir
		return g, applyLimits(dir, unifiedSettings(limits, tasks))
	}
	created := map[string]bool{} // cpu and cpuacct often share one directory
	for controller, parent := range t.legacy {
		dir := filepath.Join(parent, id)
		if !created[dir] {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			created[dir] = true
		}
		g.Dirs[controller] = dir
		if err := applyLimits(dir, legacySettings(controller, limits, tasks)); err != nil {
			return nil, err
		}
	}
	if tasks != hostPIDs && t.freezer != "" {
		dir := filepath.Join(t.freezer, id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		g.Dirs[freezer] = dir
	}
	return g, nil
}

// Weights for processor time among competing groups: the usual weight, and that of a group that
// yields to others. With an even smaller one, work in that group on which others depend could take
// minutes. All sandboxes together have the usual weight, like any other group next to them. A
// server with its own group next to them has five times as much.
const (
	usualWeight  = 100
	lowWeight    = usualWeight / 10
	serverWeight = usualWeight * 5
	// Version 1 uses other units.
	legacyWeight = 1024
)

// Yield gives other groups priority over this one when processors are short, or restores the usual
// weight. Without a group that limits processors, it does nothing.
func (g *Group) Yield(lower bool) error {
	weight := usualWeight
	if lower {
		weight = lowWeight
	}
	if dir := g.Dirs[unified]; dir != "" {
		return setUnifiedWeight(dir, weight)
	}
	if dir := g.Dirs["cpu"]; dir != "" {
		return setLegacyWeight(dir, weight)
	}
	return nil
}

// yields reports whether the group has the low weight.
func (g *Group) yields() bool {
	if dir := g.Dirs[unified]; dir != "" {
		return number(filepath.Join(dir, "cpu.weight")) == lowWeight
	}
	return number(filepath.Join(g.Dirs["cpu"], "cpu.shares")) == lowWeight*legacyWeight/usualWeight
}

// setUnifiedWeight sets the weight of a version 2 group.
func setUnifiedWeight(dir string, weight int) error {
	return writeAll(dir, [][2]string{{"cpu.weight", strconv.Itoa(weight)}})
}

// setLegacyWeight sets the weight of a version 1 group.
func setLegacyWeight(dir string, weight int) error {
	return writeAll(dir, [][2]string{{"cpu.shares", strconv.Itoa(weight * legacyWeight / usualWeight)}})
}

// usageFile returns the file in which the kernel counts the group's processor time, or "" if there
// is none.
func (g *Group) usageFile() string {
	switch {
	case g == nil:
		return ""
	case g.Dirs[unified] != "":
		return filepath.Join(g.Dirs[unified], "cpu.stat")
	case g.Dirs["cpuacct"] != "":
		return filepath.Join(g.Dirs["cpuacct"], "cpuacct.usage")
	}
	return ""
}

// cpuTime returns the processor time that the group has used.
func (g *Group) cpuTime() (time.Duration, error) {
	path := g.usageFile()
	if _, err := os.Stat(path); err != nil {
		return 0, err
	}
	if g.Dirs[unified] != "" {
		return time.Duration(keyed(path, "usage_usec")) * time.Microsecond, nil
	}
	return time.Duration(number(path)), nil
}

// unifiedSettings returns the files and values that set the limits in version 2.
func unifiedSettings(limits engine.Limits, tasks int64) [][2]string {
	return [][2]string{
		{"memory.max", strconv.FormatInt(limits.MemoryBytes, 10)},
		// With swap, a sandbox could exceed its memory at the host's cost. The file is absent if
		// the kernel has no swap accounting.
		{"?memory.swap.max", "0"},
		{"?memory.oom.group", "1"},
		{"cpu.max", fmt.Sprintf("%d 100000", limits.MilliCPU*100)},
		{"?pids.max", strconv.FormatInt(tasks, 10)},
	}
}

// legacySettings returns the files and values that set a controller's limits in version 1.
func legacySettings(controller string, limits engine.Limits, tasks int64) [][2]string {
	memory := strconv.FormatInt(limits.MemoryBytes, 10)
	switch controller {
	case "memory":
		return [][2]string{{"memory.limit_in_bytes", memory}, {"?memory.memsw.limit_in_bytes", memory}}
	case "cpu":
		return [][2]string{{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", strconv.FormatInt(limits.MilliCPU*100, 10)}}
	case "pids":
		return [][2]string{{"pids.max", strconv.FormatInt(tasks, 10)}}
	}
	return nil
}

// applyLimits writes settings of a group and reads them back: a kernel may accept a number and
// store another, and the limit would then not be in force.
func applyLimits(dir string, settings [][2]string) error {
	if err := writeAll(dir, settings); err != nil {
		return err
	}
	for _, s := range settings {
		name, optional := strings.CutPrefix(s[0], "?")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		if actual := strings.TrimSpace(string(data)); !isWithin(name, s[1], actual) {
			return fault.Newf(fault.Unsupported, "policy_not_effective", "the sandbox's control group has %.40q in %s instead of the requested %q", actual, name, s[1]).
				WithHint("nothing was started; this is a bug of crannog or of the host's kernel, please report it with the output of crannog doctor")
		}
	}
	return nil
}

// isWithin reports whether the setting in force is at least as strict as the requested one. The
// kernel stores memory limits in whole pages.
func isWithin(name, requested, actual string) bool {
	if requested == actual {
		return true
	}
	limit, err := strconv.ParseInt(requested, 10, 64)
	have, invalid := strconv.ParseInt(actual, 10, 64)
	return strings.HasPrefix(name, "memory.") && err == nil && invalid == nil && have >= 0 && have <= limit
}

// writeAll writes files below dir. A file whose name begins with "?" may be absent.
func writeAll(dir string, settings [][2]string) error {
	for _, s := range settings {
		name, optional := strings.CutPrefix(s[0], "?")
		err := write(filepath.Join(dir, name), s[1])
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// write writes a value to an existing file.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// OOMKills returns how often the kernel killed a process of the group for lack of memory. It must
// be read before the group is removed.
func (g *Group) OOMKills() int64 {
	if dir := g.Dirs[unified]; dir != "" {
		return keyed(filepath.Join(dir, "memory.events"), "oom_kill")
	}
	if dir := g.Dirs["memory"]; dir != "" {
		return keyed(filepath.Join(dir, "memory.oom_control"), "oom_kill")
	}
	return 0
}

// Usage returns the memory, page cache and CPU time of the group. Fields that the host cannot
// report are zero.
func (g *Group) Usage() engine.Usage {
	u := engine.Usage{At: time.Now()}
	if dir := g.Dirs[unified]; dir != "" {
		u.MemoryBytes = number(filepath.Join(dir, "memory.current"))
		u.MemoryCache = keyed(filepath.Join(dir, "memory.stat"), "inactive_file")
	} else {
		u.MemoryBytes = number(filepath.Join(g.Dirs["memory"], "memory.usage_in_bytes"))
		u.MemoryCache = keyed(filepath.Join(g.Dirs["memory"], "memory.stat"), "total_inactive_file")
	}
	u.MemoryBytes -= u.MemoryCache
	u.CPUTime, _ = g.cpuTime() // zero if the host cannot report it
	return u
}

// Bounds returns the memory and processor limits that the kernel has for the group now. A missing
// limit is zero.
func (g *Group) Bounds() (l engine.Limits) {
	quota, period := int64(0), int64(0)
	if dir := g.Dirs[unified]; dir != "" {
		l.MemoryBytes = number(filepath.Join(dir, "memory.max"))
		data, _ := os.ReadFile(filepath.Join(dir, "cpu.max")) // "max" or an error means no limit
		if fields := strings.Fields(string(data)); len(fields) == 2 {
			quota, _ = strconv.ParseInt(fields[0], 10, 64)
			period, _ = strconv.ParseInt(fields[1], 10, 64)
		}
	} else {
		if dir := g.Dirs["memory"]; dir != "" {
			l.MemoryBytes = number(filepath.Join(dir, "memory.limit_in_bytes"))
		}
		if dir := g.Dirs["cpu"]; dir != "" {
			quota, period = number(filepath.Join(dir, "cpu.cfs_quota_us")), number(filepath.Join(dir, "cpu.cfs_period_us"))
		}
	}
	if quota > 0 && period > 0 {
		l.MilliCPU = (quota*1000 + period - 1) / period
	}
	return l
}

// number returns the number in a file, or 0.
func number(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}

// keyed returns the number after a key in a file, or 0.
func keyed(path, key string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, _ := strconv.ParseInt(v, 10, 64)
			return n
		}
	}
	return 0
}
