package e2b

import (
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// sandboxID reads an ID as clients write it: our own, or followed by a
// hyphen and a client ID, which old clients append.
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

// notFoundAs gives the service's "not found" the text that clients know, also of
// a sandbox that was removed while the request was under way.
func notFoundAs(err error, id string) error {
	if fault.KindOf(err) == fault.NotFound || fault.CodeOf(err) == sandbox.CodeRemoved {
		return unknownSandbox(id)
	}
	return err
}

// running finds a sandbox that runs. For calls that need one, a paused one
// does not exist.
func (a *api) running(r *http.Request, who sandbox.Principal) (sandbox.Sandbox, error) {
	found, err := a.existing(r, who)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if found.State != sandbox.Running {
		return sandbox.Sandbox{}, unknownSandbox(found.ID)
	}
	return found, nil
}

// existing finds the sandbox that the path names. What neither runs nor is
// paused does not exist on this wire.
func (a *api) existing(r *http.Request, who sandbox.Principal) (sandbox.Sandbox, error) {
	found, err := a.known(r, who)
	if err == nil && !slices.Contains(wireStates, found.State) {
		err = unknownSandbox(found.ID)
	}
	return found, err
}

// known finds the sandbox that the path names, also one that has ended. Names,
// which the service takes too, do not exist on this wire.
func (a *api) known(r *http.Request, who sandbox.Principal) (sandbox.Sandbox, error) {
	id, err := sandboxID(r.PathValue("id"))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	found, err := a.Finder.Get(r.Context(), who, id)
	if err != nil {
		return sandbox.Sandbox{}, notFoundAs(err, id)
	}
	if found.ID != id {
		return sandbox.Sandbox{}, unknownSandbox(id)
	}
	return found, nil
}

// getRunnable is like existing, but returns a conflict for a sandbox that is stopping, so that
// clients know that another try will not find it.
func (a *api) getRunnable(r *http.Request, who sandbox.Principal) (sandbox.Sandbox, error) {
	found, err := a.existing(r, who)
	if err != nil && found.State == sandbox.Stopping {
		err = fault.Newf(fault.Conflict, "sandbox_stopping", "Sandbox %q is being stopped", found.ID)
	}
	return found, err
}
