package inside

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/census"
)

// Process is one process as a page shows it.
type Process struct {
	PID    int      `json:"pid"`
	Parent int      `json:"ppid"`
	User   string   `json:"user,omitempty"`
	Args   []string `json:"args"`
	// CPU is the used fraction of one processor since the previous request. It is absent for the
	// first request.
	CPU    *float64 `json:"cpu,omitempty"`
	Memory int64    `json:"memory"` // resident bytes
	// Terminal means that a caller started the process on a terminal.
	Terminal bool `json:"terminal"`
	// Requested means that a caller started the process.
	Requested bool   `json:"asked"`
	Tag       string `json:"tag,omitempty"`
}

func (x *Inside) processes(w http.ResponseWriter, r *http.Request, v visit) error {
	c, err := x.deps.Census.Census(r.Context(), v.caller.Principal(), v.sb.ID)
	if err != nil {
		return err
	}
	rate := x.rates.shares(v.sb.ID, c.Processes, time.Now())
	out := struct {
		Processes []Process `json:"processes"`
		Cut       bool      `json:"cut,omitempty"`
	}{make([]Process, 0, len(c.Processes)), c.Cut}
	for _, p := range c.Processes {
		one := Process{PID: p.PID, Parent: p.Parent, User: p.User, Args: p.Args, Memory: p.Memory, Terminal: p.Terminal, Requested: p.Requested, Tag: p.Tag}
		if cpu, ok := rate[idOf(p)]; ok {
			one.CPU = &cpu
		}
		if one.Args == nil {
			one.Args = []string{}
		}
		out.Processes = append(out.Processes, one)
	}
	return writeJSON(w, http.StatusOK, out)
}

// processID identifies a process; PIDs are reused.
type processID struct {
	pid   int
	start uint64
}

func idOf(p census.Process) processID { return processID{p.PID, p.Start} }

const (
	// minRateInterval is the least time between two measurements for a rate.
	minRateInterval = 500 * time.Millisecond
	// measurementLifetime is how long a measurement is stored, and maxMeasured the number of
	// sandboxes with measurements.
	measurementLifetime = time.Minute
	maxMeasured         = 256
)

// rates holds the CPU times at the last request of any viewer.
type rates struct {
	mu   sync.Mutex
	last map[string]*measurement
}

type measurement struct {
	at    time.Time
	spent map[processID]time.Duration
	rate  map[processID]float64
}

// shares returns each process's share of a processor since the last measurement.
func (r *rates) shares(id string, list []census.Process, now time.Time) map[processID]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]*measurement{}
	}
	old := r.last[id]
	if old != nil && now.Sub(old.at) < minRateInterval {
		return old.rate // another viewer has just measured
	}
	for other, l := range r.last {
		if now.Sub(l.at) > measurementLifetime {
			delete(r.last, other)
		}
	}
	if old != nil && now.Sub(old.at) > measurementLifetime {
		old = nil
	}
	if len(r.last) >= maxMeasured && r.last[id] == nil {
		return nil
	}
	next := &measurement{at: now, spent: make(map[processID]time.Duration, len(list)), rate: map[processID]float64{}}
	for _, p := range list {
		next.spent[idOf(p)] = p.CPU
		if old == nil {
			continue
		}
		// A new process has used all of its CPU time since the last measurement.
		used := p.CPU - old.spent[idOf(p)]
		next.rate[idOf(p)] = max(0, float64(used)/float64(now.Sub(old.at)))
	}
	r.last[id] = next
	return next.rate
}

// signals are the signals that a page may send.
var signals = []string{"TERM", "KILL", "INT", "HUP", "QUIT", "STOP", "CONT", "USR1", "USR2"}

func (x *Inside) endProcess(w http.ResponseWriter, r *http.Request, v visit) error {
	pid, err := strconv.ParseUint(r.PathValue("pid"), 10, 31)
	if err != nil {
		return fault.New(fault.Invalid, "invalid_pid", "a process is identified by its PID")
	}
	name := strings.TrimPrefix(cmp.Or(r.URL.Query().Get("signal"), "TERM"), "SIG")
	if !slices.Contains(signals, name) {
		return fault.New(fault.Invalid, "invalid_signal", "a signal is one of "+strings.Join(signals, ", "))
	}
	sig := unix.SignalNum("SIG" + name)
	if err := x.deps.Census.SignalProcess(r.Context(), v.caller.Principal(), v.sb.ID, int(pid), sig); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// findTerminal returns the program with a PID if it runs on a terminal.
func (x *Inside) findTerminal(ctx context.Context, v visit, pid int) (census.Process, error) {
	c, err := x.deps.Census.Census(ctx, v.caller.Principal(), v.sb.ID)
	if err != nil {
		return census.Process{}, err
	}
	for _, p := range c.Processes {
		if p.PID == pid && p.Terminal {
			return p, nil
		}
	}
	return census.Process{}, fault.Newf(fault.NotFound, "terminal_not_found", "no program with the PID %d runs on a terminal", pid)
}
