package e2b

import (
	"math"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// maxSeconds is the largest time in the API's 32-bit numbers.
const maxSeconds = math.MaxInt32

// createTimeout parses the timeout of create.
func createTimeout(requested *int64, g generation) (time.Duration, error) {
	seconds := g.defaultTimeout
	if requested != nil {
		seconds = *requested
	}
	if seconds <= 0 {
		return 0, fault.New(fault.Invalid, "timeout_invalid", "Timeout must be greater than 0")
	}
	return durationOf(seconds)
}

// durationOf converts seconds to a duration. A number that would overflow is refused.
func durationOf(seconds int64) (time.Duration, error) {
	if seconds < 0 || seconds > maxSeconds {
		return 0, fault.Newf(fault.Invalid, "timeout_invalid", "Timeout must be between 0 and %d", maxSeconds)
	}
	return time.Duration(seconds) * time.Second, nil
}

// limits parses the limits of create. An absent limit means the default. Zero and negative values
// are errors, so that no client takes zero for "no limit".
func (b *limitsBody) limits() (sandbox.Limits, error) {
	var l sandbox.Limits
	if b == nil {
		return l, nil
	}
	var timeout int64
	for _, f := range []struct {
		name string
		from *int64
		unit int64
		to   *int64
	}{
		{"memoryMB", b.MemoryMB, 1 << 20, &l.MemoryBytes},
		{"cpuMillis", b.CPUMillis, 1, &l.MilliCPU},
		{"pids", b.PIDs, 1, &l.PIDs},
		{"diskMB", b.DiskMB, 1 << 20, &l.DiskBytes},
		{"inodes", b.Inodes, 1, &l.DiskInodes},
		{"shmMB", b.ShmMB, 1 << 20, &l.ShmBytes},
		{"commandTimeoutSeconds", b.CommandTimeoutSeconds, int64(time.Second), &timeout},
		{"outputBytes", b.OutputBytes, 1, &l.OutputBytes},
	} {
		if f.from == nil {
			continue
		}
		if *f.from <= 0 || *f.from > math.MaxInt64/f.unit {
			return sandbox.Limits{}, fault.Newf(fault.Invalid, "limits_invalid",
				"limits.%s must be a number above zero within the range of its type", f.name)
		}
		*f.to = *f.from * f.unit
	}
	l.CommandTimeout = time.Duration(timeout)
	return l, nil
}

// limitsOf returns the limits in force.
func limitsOf(l sandbox.Limits) limitsBody {
	set := l.Limits.OrDefault()
	return limitsBody{
		MemoryMB:              new(set.MemoryBytes >> 20),
		CPUMillis:             new(set.MilliCPU),
		PIDs:                  new(set.PIDs),
		DiskMB:                new(set.DiskBytes >> 20),
		Inodes:                new(set.DiskInodes),
		ShmMB:                 new(set.ShmBytes >> 20),
		CommandTimeoutSeconds: positive(int64(l.CommandTimeout / time.Second)),
		OutputBytes:           positive(l.OutputBytes),
	}
}

func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

// wholeCPUs rounds up: the API counts CPUs in whole numbers.
func wholeCPUs(l engine.Limits) int64 {
	return (l.OrDefault().MilliCPU + 999) / 1000
}
