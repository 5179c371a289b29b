package e2b

import (
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

const maxForks = 100

// forkBody is the body of fork. Pointers distinguish "absent" from zero.
type forkBody struct {
	accessFields
	Count   *int   `json:"count"`
	Timeout *int64 `json:"timeout"`
}

// forkResult has either a copy or an error.
type forkResult struct {
	Sandbox *sandboxBody `json:"sandbox,omitempty"`
	Error   *failure     `json:"error,omitempty"`
}

// request converts the body for the sandbox service.
func (b forkBody) request() (sandbox.ForkRequest, error) {
	if err := b.rejectAccess("a copy has the access of its source and cannot get another"); err != nil {
		return sandbox.ForkRequest{}, err
	}
	req := sandbox.ForkRequest{Count: 1}
	if b.Count != nil {
		req.Count = *b.Count
	}
	if req.Count < 1 || req.Count > maxForks {
		return sandbox.ForkRequest{}, fault.Newf(fault.Invalid, "count_invalid", "count must be between 1 and %d", maxForks)
	}
	var err error
	req.Timeout, err = createTimeout(b.Timeout, createV1)
	return req, err
}

// fork copies a running sandbox. Each copy has its own outcome.
func (a *api) fork(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body forkBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	req, err := body.request()
	if err != nil {
		return err
	}
	found, err := a.existing(r, caller)
	if err != nil {
		return err
	}
	if found.State == sandbox.Paused {
		return alreadyPaused(found.ID)
	}
	forks, err := a.States.Fork(r.Context(), caller, found.ID, req)
	if err != nil {
		return notFoundAs(err, found.ID)
	}
	results := make([]forkResult, 0, len(forks))
	for _, f := range forks {
		if f.Err != nil {
			failed := a.failureOf(r, f.Err)
			results = append(results, forkResult{Error: &failed})
			continue
		}
		made := a.sandboxBody(f.Sandbox)
		results = append(results, forkResult{Sandbox: &made})
	}
	writeJSON(w, http.StatusCreated, results)
	return nil
}
