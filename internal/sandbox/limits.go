package sandbox

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/engine"
)

// DefaultLimits replace fields that are zero. A command may run for the longest life that a key may
// request, so a server that a client starts in the background lives as long as its sandbox.
var DefaultLimits = Limits{
	Limits:         engine.DefaultLimits,
	CommandTimeout: 24 * time.Hour,
	OutputBytes:    8 << 20,
}

// LeastLimits are the least limits with which a sandbox is usable.
var LeastLimits = Limits{
	Limits: engine.Limits{
		// The sandbox's kernel, the guest and one Python with a few libraries use about 100 MiB.
		// With less, the sandbox reaches its limit before a program in it can report an error.
		MemoryBytes: 128 << 20,
		MilliCPU:    100,
		// A login shell with a pipeline needs a dozen processes or threads, and the guest has as
		// many threads.
		PIDs:       32,
		DiskBytes:  16 << 20,
		DiskInodes: 1000,
		ShmBytes:   1 << 20,
	},
	CommandTimeout: time.Second,
	OutputBytes:    1 << 10,
}

// LimitField is one of the limits, with its name and unit.
type LimitField struct {
	Name  string
	Limit engine.Limit // the name of the limit that the engine must enforce, or "" for one that Crannog enforces
	Value *int64
	Text  func(int64) string // in the units that callers write
}

func countText(n int64) string { return strconv.FormatInt(n, 10) }

func cpuText(milli int64) string { return config.FormatCPUs(milli) }

// sizeText writes a size in the largest unit that fits, rounded down to a tenth, so that a caller
// may request exactly the size that an error shows.
func sizeText(n int64) string {
	if n != 0 && n%(1<<20) == 0 {
		return config.FormatSize(n)
	}
	for _, u := range []struct {
		name  string
		shift uint
	}{{"t", 40}, {"g", 30}, {"m", 20}, {"k", 10}} {
		if n >= 1<<u.shift {
			return strconv.FormatFloat(math.Floor(float64(n)/float64(int64(1)<<u.shift)*10)/10, 'f', -1, 64) + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Fields returns all limits, so that no check forgets one.
func (l *Limits) Fields() []LimitField {
	return []LimitField{
		{"memory", engine.LimitMemory, &l.MemoryBytes, sizeText},
		{"cpus", engine.LimitCPU, &l.MilliCPU, cpuText},
		{"pids", engine.LimitPIDs, &l.PIDs, countText},
		{"disk", engine.LimitDisk, &l.DiskBytes, sizeText},
		{"inodes", engine.LimitInodes, &l.DiskInodes, countText},
		// This follows the memory limit, from which its default is derived.
		{"shm", engine.LimitShm, &l.ShmBytes, sizeText},
		{"command timeout", "", (*int64)(&l.CommandTimeout), func(n int64) string { return time.Duration(n).String() }},
		{"output", "", &l.OutputBytes, sizeText},
	}
}
