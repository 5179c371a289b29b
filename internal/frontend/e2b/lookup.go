package e2b

import (
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// sandboxID parses an ID: one of Crannog's, or one followed by a hyphen and a client ID, which old
// clients append.
func sandboxID(raw string) (string, error) {
	id, client, both := strings.Cut(raw, "-")
	if !isID(id) || (both && !isID(client)) {
		return "", fault.New(fault.Invalid, "sandbox_id_invalid", "Invalid sandbox ID")
	}
	return id, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func unknownSandbox(id string) error {
	return fault.Newf(fault.NotFound, "sandbox_not_found", "Sandbox %q doesn't exist or you don't have access to it", id)
}

// notFoundAs replaces the text of "not found" errors by the one that clients expect, also if the
// sandbox was removed during the request.
func notFoundAs(err error, id string) error {
	if fault.KindOf(err) == fault.NotFound || fault.CodeOf(err) == sandbox.CodeRemoved {
		return unknownSandbox(id)
	}
	return err
}

// running returns a running sandbox. Calls that need one treat a paused sandbox as missing.
func (a *api) running(r *http.Request, caller sandbox.Principal) (sandbox.Sandbox, error) {
	found, err := a.existing(r, caller)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if found.State != sandbox.Running {
		return sandbox.Sandbox{}, unknownSandbox(found.ID)
	}
	return found, nil
}

// existing returns the sandbox in the path. In this API, only running and paused sandboxes exist.
func (a *api) existing(r *http.Request, caller sandbox.Principal) (sandbox.Sandbox, error) {
	found, err := a.known(r, caller)
	if err == nil && !slices.Contains(visibleStates, found.State) {
		err = unknownSandbox(found.ID)
	}
	return found, err
}

// known returns the sandbox in the path, even if it has ended. Names, which the service accepts
// too, do not exist in this API.
func (a *api) known(r *http.Request, caller sandbox.Principal) (sandbox.Sandbox, error) {
	id, err := sandboxID(r.PathValue("id"))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	found, err := a.Finder.Get(r.Context(), caller, id)
	if err != nil {
		return sandbox.Sandbox{}, notFoundAs(err, id)
	}
	if found.ID != id {
		return sandbox.Sandbox{}, unknownSandbox(id)
	}
	return found, nil
}

// getRunnable is like existing, but returns a conflict for a sandbox that is stopping, so that
// clients do not retry.
func (a *api) getRunnable(r *http.Request, caller sandbox.Principal) (sandbox.Sandbox, error) {
	found, err := a.existing(r, caller)
	if err != nil && found.State == sandbox.Stopping {
		err = fault.Newf(fault.Conflict, "sandbox_stopping", "Sandbox %q is being stopped", found.ID)
	}
	return found, err
}
