package lifecycle

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// fillMaximum fills the zero fields of an operator's maxima with the host's resources.
func fillMaximum(set sandbox.Limits) (sandbox.Limits, error) {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return sandbox.Limits{}, fmt.Errorf("read the host's memory: %w", err)
	}
	host := sandbox.Limits{
		Limits: engine.Limits{
			MemoryBytes: int64(info.Totalram) * int64(info.Unit),
			MilliCPU:    int64(runtime.NumCPU()) * 1000,
			PIDs:        32768,
			DiskBytes:   1 << 40,
			DiskInodes:  100_000_000,
			ShmBytes:    int64(info.Totalram) * int64(info.Unit),
		},
		CommandTimeout: 7 * 24 * time.Hour,
		// The server has the output of a command in memory, several times over while it is encoded
		// as JSON.
		OutputBytes: 64 << 20,
	}
	have, def, low := set.Fields(), host.Fields(), sandbox.LeastLimits.Fields()
	for i := range have {
		if *have[i].Value == 0 {
			*have[i].Value = *def[i].Value
		}
		if *have[i].Value < *low[i].Value {
			return sandbox.Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
				"the maximum of %s is %s, and a sandbox needs %s", have[i].Name, have[i].Text(*have[i].Value), have[i].Text(*low[i].Value))
		}
	}
	return set, nil
}

// defaultShm returns the size of /dev/shm for a memory size: half of it, as in Linux. Its content
// counts against the memory.
func defaultShm(memory int64) int64 { return memory / 2 }

// limits replaces zero fields by the defaults and rejects values out of range.
func (pl *planner) limits(asked sandbox.Limits) (sandbox.Limits, error) {
	low, high, def := sandbox.LeastLimits, pl.settings.Max, sandbox.DefaultLimits
	have, lows, highs, defs := asked.Fields(), low.Fields(), high.Fields(), def.Fields()
	for i, f := range have {
		if *f.Value == 0 {
			// On a small host the default is the host's memory.
			*f.Value = min(*defs[i].Value, *highs[i].Value)
			if f.Limit == engine.LimitDisk {
				*f.Value = max(pl.room.Fit(*f.Value), *lows[i].Value)
			}
			if f.Limit == engine.LimitShm {
				*f.Value = min(defaultShm(asked.MemoryBytes), *highs[i].Value)
			}
		}
		if *f.Value < *lows[i].Value || *f.Value > *highs[i].Value {
			return sandbox.Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
				"%s is %s, and must be from %s to %s", f.Name, f.Text(*f.Value), f.Text(*lows[i].Value), f.Text(*highs[i].Value))
		}
	}
	if asked.ShmBytes > asked.MemoryBytes {
		return sandbox.Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
			"shm is %d bytes, and /dev/shm is in the sandbox's memory, which is %d", asked.ShmBytes, asked.MemoryBytes).
			WithHint("request more memory or less shm")
	}
	return asked, nil
}

// enforceable returns the limits as the engine can enforce them. A default is lowered to the
// engine's maximum. A request for more than the maximum is refused, because the caller would
// otherwise run out of space unexpectedly.
func enforceable(limits, asked sandbox.Limits, e engine.Info) (sandbox.Limits, error) {
	lowered := limits
	lowered.Limits = e.Hold(limits.Limits)
	have, requested := lowered.Fields(), asked.Fields()
	for i, f := range have {
		if *requested[i].Value > *f.Value {
			return sandbox.Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
				"%s is %s, and the engine %s keeps files in memory, of which at most %s can be %s here", f.Name, f.Text(*requested[i].Value), e.Name, f.Text(*f.Value), f.Name).
				WithHint("request more memory or less " + f.Name)
		}
	}
	return lowered, nil
}
