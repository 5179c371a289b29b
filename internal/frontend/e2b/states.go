package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// States pauses, resumes and forks sandboxes.
type States interface {
	Pause(ctx context.Context, caller sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error)
	Resume(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error)
	ResumeFiles(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error)
	Fork(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error)
}

// resumeDefault is the default timeout of resume, in seconds.
const resumeDefault = 15

// stateOf returns the state in this API. A sandbox that does not run now but can run again is
// paused.
func stateOf(s sandbox.Sandbox) string {
	if s.State == sandbox.Running {
		return stateRunning
	}
	return statePaused
}

// pause saves a sandbox and ends its processes.
func (a *api) pause(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Memory *bool `json:"memory"`
	}
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	found, err := a.existing(r, caller)
	if err != nil {
		return err
	}
	if found.State == sandbox.Paused {
		return alreadyPaused(found.ID)
	}
	filesOnly := body.Memory != nil && !*body.Memory
	if _, err := a.States.Pause(r.Context(), caller, found.ID, filesOnly); err != nil {
		return notPaused(notFoundAs(err, found.ID))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// notPaused replaces all other conflicts by another error, because clients take 409 as "already
// paused". Users would believe that a state was saved although it was not.
func notPaused(err error) error {
	if fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) == codePaused {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeOf(err), fault.PublicText(err)).WithHint(fault.HintOf(err))
}

// codePaused is the code of the error that a sandbox is paused.
const codePaused = "sandbox_paused"

func alreadyPaused(id string) error {
	return fault.Newf(fault.Conflict, codePaused, "Sandbox %q is paused", id)
}

// resume resumes a paused sandbox. Unlike connect, it returns a conflict for a running one.
func (a *api) resume(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Timeout   *int64 `json:"timeout"`
		AutoPause *bool  `json:"autoPause"`
		Memory    *bool  `json:"memory"`
	}
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	seconds := int64(resumeDefault)
	if body.Timeout != nil {
		seconds = *body.Timeout
	}
	d, err := resumeTime(seconds)
	if err != nil {
		return err
	}
	found, err := a.getRunnable(r, caller)
	if err != nil {
		return err
	}
	if found.State == sandbox.Running {
		return alreadyRunning(found.ID)
	}
	if body.AutoPause != nil && *body.AutoPause != found.OnEnd.Pause {
		return notSupported("changing the action at a sandbox's end when resuming it")
	}
	resumed, wasPaused, err := a.resumer(body.Memory)(r.Context(), caller, found.ID, d)
	if err != nil {
		return notFoundAs(err, found.ID)
	}
	if !wasPaused {
		return alreadyRunning(found.ID) // another caller was faster
	}
	writeJSON(w, http.StatusCreated, a.sandboxBody(resumed))
	return nil
}

func alreadyRunning(id string) error {
	return fault.Newf(fault.Conflict, "sandbox_running", "Sandbox %q is already running", id)
}

// resumeTime parses the lifetime after a resume. Zero means the shortest time, and not the
// service's default, which is longer.
func resumeTime(seconds int64) (time.Duration, error) {
	d, err := durationOf(seconds)
	return max(d, time.Second), err
}

// resumer returns the function that resumes a paused sandbox. Without memory the sandbox boots
// again, even if its memory was saved.
func (a *api) resumer(memory *bool) func(context.Context, sandbox.Principal, string, time.Duration) (sandbox.Sandbox, bool, error) {
	if memory != nil && !*memory {
		return a.States.ResumeFiles
	}
	return a.States.Resume
}

// maxConnectAttempts bounds how often connect retries with a sandbox that is paused during the
// call.
const maxConnectAttempts = 3

// connect resumes a paused sandbox. It extends the life of a running one to d from now, but never
// shortens it.
func (a *api) connect(w http.ResponseWriter, r *http.Request, caller sandbox.Principal, body connectBody) error {
	d, err := resumeTime(*body.Timeout)
	if err != nil {
		return err
	}
	found, err := a.getRunnable(r, caller)
	if err != nil {
		return err
	}
	extendErr := unknownSandbox(found.ID)
	for range maxConnectAttempts {
		if found.State == sandbox.Running {
			var extended sandbox.Sandbox
			if extended, extendErr = a.Lifetimes.Extend(r.Context(), caller, found.ID, d); extendErr == nil {
				writeJSON(w, http.StatusOK, a.sandboxBody(extended))
				return nil
			}
			if fault.KindOf(extendErr) != fault.NotFound {
				return extendErr
			}
			// The sandbox's lifetime ended during the call: it is paused, or has been removed.
		}
		var wasPaused bool
		id := found.ID
		if found, wasPaused, err = a.resumer(body.Memory)(r.Context(), caller, id, d); err != nil {
			return notFoundAs(err, id)
		}
		if wasPaused {
			writeJSON(w, http.StatusCreated, a.sandboxBody(found))
			return nil
		}
	}
	return notFoundAs(extendErr, found.ID)
}
