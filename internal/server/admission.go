package server

import (
	"runtime"
	"time"

	"github.com/crannog/crannog/internal/sandbox/admission"
)

// Starts bound how sandboxes are started. Zero in a field is the default.
type Starts struct {
	AtOnce    int // most that start at once; zero adapts to what is measured
	MaxQueued int // most requests that wait
	// MaxWait is the longest expected wait with which a request is queued.
	MaxWait time.Duration
}

// openAdmission makes the queue of starts. It shares the machine with other
// processes of this user where it can, and otherwise says so.
func openAdmission(o Options) *admission.Queue {
	q := admission.Options{AtOnce: o.Starts.AtOnce, MaxWaiting: o.Starts.MaxQueued, MaxWait: o.Starts.MaxWait, Log: o.Log}
	slots := max(admission.MostAtOnce(runtime.NumCPU()), o.Starts.AtOnce)
	machine, err := admission.OpenMachine(admission.MachineDir(), slots)
	if err != nil {
		o.Log.Warn("sandboxes are started without regard to other processes", "err", err)
	} else {
		q.Machine = machine
	}
	return admission.New(q)
}
