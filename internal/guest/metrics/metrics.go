// Package metrics owns the measurement of a sandbox's processor, memory and disk use, as its own
// kernel reports it.
package metrics

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Limits are the totals that are enforced from outside. Zero means unknown, and then the values of
// the kernel inside are used.
type Limits struct {
	MilliCPU    int64
	MemoryBytes int64
	DiskBytes   int64
	// HostMemory is set if the kernel inside shows the host's memory.
	HostMemory bool
}

// Sample is one measurement, with the field names that clients expect.
type Sample struct {
	Unix       int64   `json:"ts"`
	CPUCount   int64   `json:"cpu_count"`
	CPUPercent float64 `json:"cpu_used_pct"`
	MemTotal   int64   `json:"mem_total"`
	MemUsed    int64   `json:"mem_used"`
	MemCache   int64   `json:"mem_cache"`
	MemTotalMB int64   `json:"mem_total_mib"`
	MemUsedMB  int64   `json:"mem_used_mib"`
	DiskUsed   int64   `json:"disk_used"`
	DiskTotal  int64   `json:"disk_total"`
}

// Sampler takes samples. It measures processor use since the previous sample, so nothing runs in
// between. It is safe for concurrent use.
type Sampler struct {
	proc   string
	groups string
	root   string

	mu      sync.Mutex
	limits  Limits
	at      time.Time     // time of the previous sample
	spent   time.Duration // processor time until then
	percent float64       // last result
}

// New returns a Sampler that measures from now on.
func New(limits Limits) *Sampler {
	return &Sampler{limits: limits, proc: "/proc", groups: "/sys/fs/cgroup", root: "/", at: time.Now()}
}

// Renew replaces the limits.
func (s *Sampler) Renew(limits Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = limits
}

func (s *Sampler) totals() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// minInterval is the minimum time between two samples for a useful result, because the kernel
// counts in hundredths of a second.
const minInterval = 200 * time.Millisecond

// Sample takes a sample.
func (s *Sampler) Sample() (Sample, error) {
	limits := s.totals()
	out := Sample{Unix: time.Now().Unix(), CPUCount: limits.cpus()}
	percent, err := s.cpu()
	if err != nil {
		return out, err
	}
	out.CPUPercent = percent
	mem, err := s.memory(limits)
	if err != nil {
		return out, err
	}
	out.MemTotal, out.MemUsed, out.MemCache = mem.total, mem.total-mem.free-mem.cache, mem.cache
	if limits.MemoryBytes > 0 {
		out.MemTotal = limits.MemoryBytes
	}
	out.MemTotalMB, out.MemUsedMB = out.MemTotal>>20, out.MemUsed>>20
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.root, &disk); err != nil {
		return out, fmt.Errorf("statfs %s: %w", s.root, err)
	}
	out.DiskTotal = int64(disk.Blocks) * disk.Bsize
	out.DiskUsed = int64(disk.Blocks-disk.Bfree) * disk.Bsize
	if limits.DiskBytes > 0 {
		out.DiskTotal = limits.DiskBytes
	}
	return out, nil
}

// memory returns the memory that the kernel inside reports, or that of the sandbox's own cgroup or
// processes if the kernel shows the host's.
func (s *Sampler) memory(l Limits) (memory, error) {
	if !l.HostMemory {
		return readMeminfo(s.proc + "/meminfo")
	}
	used, cache, ok := groupMemory(s.groups)
	if !ok {
		var err error
		if used, err = processMemory(s.proc); err != nil {
			return memory{}, err
		}
	}
	total := max(l.MemoryBytes, used)
	return memory{total: total, free: total - used, cache: min(cache, used)}, nil
}

// cpus returns the number of processors, rounded up: a sandbox with 1.5 processors sees two.
func (l Limits) cpus() int64 {
	if l.MilliCPU > 0 {
		return (l.MilliCPU + 999) / 1000
	}
	return int64(runtime.NumCPU())
}

// cpu returns the processor use since the previous sample in percent of one processor: 150 means
// one and a half.
func (s *Sampler) cpu() (float64, error) {
	spent, err := cpuTime(s.proc)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if passed := now.Sub(s.at); passed >= minInterval {
		s.percent = max(0, float64(spent-s.spent)/float64(passed)*100)
		s.at, s.spent = now, spent
	}
	return s.percent, nil
}
