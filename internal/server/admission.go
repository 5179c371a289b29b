package server

import (
	"runtime"
	"time"

	"github.com/crannog/crannog/internal/sandbox/admission"
)

// Starts limit how sandboxes are started. A zero field means its default.
type Starts struct {
	AtOnce    int // maximum of concurrent starts; zero adapts to measurements
	MaxQueued int // maximum of waiting requests
	// MaxWait is the longest expected wait for which a request is queued.
	MaxWait time.Duration
}

// openAdmission creates the queue of starts. If possible, it coordinates starts with other
// processes of this user. Otherwise it logs a warning.
func openAdmission(o Options) *admission.Queue {
	q := admission.Options{AtOnce: o.Starts.AtOnce, MaxWaiting: o.Starts.MaxQueued, MaxWait: o.Starts.MaxWait, Log: o.Log}
	slots := max(admission.MaxAtOnce(runtime.NumCPU()), o.Starts.AtOnce)
	machine, err := admission.OpenMachine(admission.MachineDir(), slots)
	if err != nil {
		o.Log.Warn("starts of sandboxes are not coordinated with other processes", "err", err)
	} else {
		q.Machine = machine
	}
	return admission.New(q)
}
