package sandbox

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// DefaultLimits are used for every field that is zero. A command is bounded
// by the longest life that a key may ask for, so a server that a client
// starts in the background lives as long as its sandbox.
var DefaultLimits = Limits{
	Limits:         engine.DefaultLimits,
	CommandTimeout: 24 * time.Hour,
	OutputBytes:    8 << 20,
}

// least is what a sandbox needs to be usable.
var least = Limits{
	Limits: engine.Limits{
		// The box's kernel, the guest and one Python with a few libraries use
		// about 100 MiB; with less the box dies of its limit before a program
		// in it can report anything.
		MemoryBytes: 128 << 20,
		MilliCPU:    100,
		// A login shell with a pipeline takes a dozen, the guest's threads as
		// many.
		PIDs:       32,
		DiskBytes:  16 << 20,
		DiskInodes: 1000,
		ShmBytes:   1 << 20,
	},
	CommandTimeout: time.Second,
	OutputBytes:    1 << 10,
}

// most fills the zero fields of an operator's maxima with the host's.
func most(set Limits) (Limits, error) {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return Limits{}, fmt.Errorf("read the host's memory: %w", err)
	}
	host := Limits{
		Limits: engine.Limits{
			MemoryBytes: int64(info.Totalram) * int64(info.Unit),
			MilliCPU:    int64(runtime.NumCPU()) * 1000,
			PIDs:        32768,
			DiskBytes:   1 << 40,
			DiskInodes:  100_000_000,
			ShmBytes:    int64(info.Totalram) * int64(info.Unit),
		},
		CommandTimeout: 7 * 24 * time.Hour,
		// An answer is held in the server's memory, several times over while
		// it becomes JSON.
		OutputBytes: 64 << 20,
	}
	have, def, low := set.fields(), host.fields(), least.fields()
	for i := range have {
		if *have[i].value == 0 {
			*have[i].value = *def[i].value
		}
		if *have[i].value < *low[i].value {
			return Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
				"the maximum of %s is %d, and a sandbox needs %d", have[i].name, *have[i].value, *low[i].value)
		}
	}
	return set, nil
}

// limits fills zero fields with the defaults and refuses what no sandbox
// can have.
func (s *Service) limits(asked Limits) (Limits, error) {
	low, high, def := least, s.settings.Max, DefaultLimits
	have, lows, highs, defs := asked.fields(), low.fields(), high.fields(), def.fields()
	given := asked
	for i, f := range have {
		if *f.value == 0 {
			// A small host gives what it has.
			*f.value = min(*defs[i].value, *highs[i].value)
			if f.limit == engine.LimitDisk {
				*f.value = max(s.room.Fit(*f.value), *lows[i].value)
			}
			if f.limit == engine.LimitShm {
				*f.value = min(shmOf(asked.MemoryBytes), *highs[i].value)
			}
		}
		if *f.value < *lows[i].value || *f.value > *highs[i].value {
			return Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
				"%s is %s, and must be from %s to %s", f.name, f.text(*f.value), f.text(*lows[i].value), f.text(*highs[i].value))
		}
	}
	if asked.ShmBytes > asked.MemoryBytes {
		return Limits{}, fault.Newf(fault.Invalid, "limit_out_of_range",
			"shm is %d bytes, and /dev/shm is in the sandbox's memory, which is %d", asked.ShmBytes, asked.MemoryBytes).
			WithHint("ask for more memory, or for less shm")
	}
	return asked, s.enforced(given)
}

// shmOf is the size of /dev/shm in a sandbox with so much memory: half of it, as
// Linux has it. What is in it counts against the memory.
func shmOf(memory int64) int64 { return memory / 2 }

// enforced refuses a limit that was asked for and that the engine does not
// enforce. Accepted, it would be a lie that the caller's plans rest on.
func (s *Service) enforced(asked Limits) error {
	info := s.engine.Info()
	for _, f := range asked.fields() {
		if *f.value != 0 && f.limit != "" && !slices.Contains(info.Enforces, f.limit) {
			return fault.Newf(fault.Unsupported, "limit_not_enforced",
				"the engine %s does not enforce a limit of %s on this host", info.Name, f.name).
				WithHint("leave this limit out; crannog doctor says what is enforced here")
		}
	}
	return nil
}

type limitField struct {
	name  string
	limit engine.Limit // what the engine must enforce, or "" for ours
	value *int64
	unit  int64 // of the number that a caller sees
	what  string
}

func (f limitField) text(v int64) string {
	if f.unit > 1 {
		return fmt.Sprintf("%d%s", v/f.unit, f.what)
	}
	return fmt.Sprintf("%d%s", v, f.what)
}

// fields lists all limits, so that no rule forgets one.
func (l *Limits) fields() []limitField {
	return []limitField{
		{"memory", engine.LimitMemory, &l.MemoryBytes, 1, " bytes"},
		{"cpu", engine.LimitCPU, &l.MilliCPU, 1, " thousandths of a CPU"},
		{"pids", engine.LimitPIDs, &l.PIDs, 1, ""},
		{"disk", engine.LimitDisk, &l.DiskBytes, 1, " bytes"},
		{"inodes", engine.LimitInodes, &l.DiskInodes, 1, ""},
		// After memory, on which its default depends.
		{"shm", engine.LimitShm, &l.ShmBytes, 1, " bytes"},
		{"command timeout", "", (*int64)(&l.CommandTimeout), int64(time.Millisecond), " ms"},
		{"output", "", &l.OutputBytes, 1, " bytes"},
	}
}
