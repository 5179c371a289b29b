package e2b

import (
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// connectDefault is the default timeout of a connect of the second generation.
const connectDefault = 300

// A refresh sets a lifetime of at least minRefresh and at most maxRefresh.
const (
	minRefresh = 15
	maxRefresh = 3600
)

func (a *api) info(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	found, err := a.existing(r, caller)
	if err != nil {
		return err
	}
	body, err := a.detailBody(r.Context(), caller, found)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func (a *api) remove(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	found, err := a.existing(r, caller)
	if err != nil {
		return err
	}
	if err := a.Lifetimes.Remove(r.Context(), caller, found.ID); err != nil {
		return notFoundAs(err, found.ID)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) setTimeout(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if body.Timeout == nil {
		return timeoutMissing()
	}
	d, err := durationOf(*body.Timeout)
	if err != nil {
		return err
	}
	found, err := a.running(r, caller)
	if err != nil {
		return err
	}
	if _, err := a.Lifetimes.SetTimeout(r.Context(), caller, found.ID, d); err != nil {
		return notFoundAs(err, found.ID)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) refresh(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Duration int64 `json:"duration"`
	}
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if body.Duration < 0 || body.Duration > maxRefresh {
		return fault.Newf(fault.Invalid, "duration_invalid", "duration must be between 0 and %d", maxRefresh)
	}
	seconds := max(body.Duration, minRefresh)
	found, err := a.running(r, caller)
	if err != nil {
		return err
	}
	if _, err := a.Lifetimes.Extend(r.Context(), caller, found.ID, time.Duration(seconds)*time.Second); err != nil {
		return notFoundAs(err, found.ID)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// connectBody is the body of both connects. Memory chooses how a paused sandbox is resumed; it does
// not affect a running one.
type connectBody struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

func (a *api) connectV1(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body connectBody
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if body.Timeout == nil {
		return timeoutMissing()
	}
	return a.connect(w, r, caller, body)
}

func (a *api) connectV2(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body connectBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if body.Timeout == nil {
		body.Timeout = new(int64(connectDefault))
	}
	return a.connect(w, r, caller, body)
}

func timeoutMissing() error {
	return fault.New(fault.Invalid, "timeout_missing", "timeout is required")
}
