package lifecycle

import (
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// lifetime returns how long the sandbox may live. Zero means without an end.
func (pl *planner) lifetime(caller sandbox.Principal, req sandbox.CreateRequest) (time.Duration, error) {
	switch {
	case req.Forever && req.Timeout != 0:
		return 0, fault.New(fault.Invalid, "timeout_invalid", "a timeout and forever exclude each other")
	case req.Forever:
		return 0, nil
	case req.Timeout == 0:
		return pl.settings.DefaultTimeout, nil
	case req.Timeout < 0:
		return 0, fault.New(fault.Invalid, "timeout_invalid", "Timeout must be greater than 0")
	}
	return req.Timeout, pl.checkTimeout(caller, req.Timeout)
}

func (pl *planner) checkTimeout(caller sandbox.Principal, d time.Duration) error {
	limit := pl.settings.MaxTimeout
	if caller.Local {
		limit = maxLocalTimeout
	}
	if d > limit {
		return fault.Newf(fault.Invalid, "timeout_invalid", "Timeout cannot be greater than %d seconds", int64(limit/time.Second))
	}
	return nil
}

// checkOnEnd rejects contradictory settings, and actions that this engine cannot take at the end.
func (pl *planner) checkOnEnd(o sandbox.OnEnd, name string) error {
	switch {
	case !o.Pause && (o.FilesOnly || o.Wake):
		if o.FilesOnly {
			return fault.New(fault.Invalid, "on_end_invalid", "pausing without memory requires a pause at the end")
		}
		return nil // traffic also wakes a sandbox that a caller has paused
	case o.FilesOnly && o.Wake:
		return fault.New(fault.Invalid, "on_end_invalid", "traffic cannot resume a sandbox that is paused without memory")
	case !o.Pause:
		return nil
	}
	return pl.states.CanSave(name, o.FilesOnly)
}

func (pl *planner) checkFork(caller sandbox.Principal, req sandbox.ForkRequest) (time.Duration, error) {
	if req.Count < 1 || req.Count > maxCopies {
		return 0, fault.Newf(fault.Invalid, "count_invalid", "count is %d, and must be from 1 to %d", req.Count, maxCopies)
	}
	if err := caller.Check(); err != nil {
		return 0, err
	}
	create := sandbox.CreateRequest{Timeout: req.Timeout, Forever: req.Forever, Ephemeral: req.Ephemeral}
	if err := checkLocal(caller, create); err != nil {
		return 0, err
	}
	return pl.lifetime(caller, create)
}
