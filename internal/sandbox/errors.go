package sandbox

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/fault"
)

// CodeUnknown and CodeNotRunning are the codes of errors about sandboxes that do not
// exist or no longer run.
const (
	CodeUnknown    = "sandbox_not_found"
	CodeNotRunning = "sandbox_not_running"
)

// Unknown is the error for a sandbox that does not exist or that the caller
// may not see. Both read the same, so that IDs cannot be probed.
func Unknown(ref string) error {
	const limit = 100
	if len(ref) > limit {
		ref = ref[:limit] + "…"
	}
	return fault.Newf(fault.NotFound, CodeUnknown,
		"Sandbox \"%s\" doesn't exist or you don't have access to it", ref)
}

// NotRunning returns the error for a sandbox that does not run.
func NotRunning(r Row) error {
	why := string(r.State)
	if r.Reason != "" {
		why = r.Reason
	}
	return fault.Newf(fault.NotFound, CodeNotRunning, "Sandbox \"%s\" is not running (%s)", r.ID, why)
}

// Codes of errors when a Store has too many sandboxes.
const (
	CodeTooMany       = "too_many_sandboxes" // live ones
	CodeTooManyPaused = "too_many_paused"
)

// CodeChanged is the code of a request that failed because another request changed the sandbox
// first. The failed request had no effect, and a retry may work.
const CodeChanged = "sandbox_changed"

// CodeRemoved is the code of a request whose sandbox was removed during the request.
const CodeRemoved = "sandbox_removed"

// SnapshotUnknown is the error for a snapshot that does not exist or that the
// caller may not see. Both read the same, so that IDs cannot be probed.
func SnapshotUnknown(ref string) error {
	const limit = 100
	if len(ref) > limit {
		ref = ref[:limit] + "…"
	}
	return fault.Newf(fault.NotFound, "snapshot_not_found", "Snapshot \"%s\" doesn't exist or you don't have access to it", ref)
}

// Canceled classifies why a context ended.
func Canceled(cause error) error {
	if _, ok := errors.AsType[*fault.Error](cause); ok {
		return cause
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return fault.Wrap(cause, fault.Timeout, "timeout", "the request took too long")
	}
	return fault.Wrap(cause, fault.Canceled, "canceled", "the request was canceled")
}
