package crannog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/crannog/crannog/api"
)

// OnEnd sets the action when the sandbox's time is up, such as api.OnEnd{Pause: true}. Without it
// the sandbox ends.
func OnEnd(o api.OnEnd) CreateOption { return func(r *api.CreateSandbox) { r.OnEnd = &o } }

// Pause saves the sandbox's memory, processes and files on disk, and ends its processes. The
// sandbox keeps its ID, name and tokens, and uses no memory. All its connections are closed. If it
// is already paused, the error is an ErrConflict with the code "sandbox_paused".
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.change(ctx, http.MethodPost, "/pause", api.Pause{})
	return err
}

// PauseFiles is Pause without memory and processes: the sandbox boots again when it is resumed.
func (s *Sandbox) PauseFiles(ctx context.Context) error {
	_, err := s.change(ctx, http.MethodPost, "/pause", api.Pause{FilesOnly: true})
	return err
}

// Resume continues a paused sandbox where it was, for d. Zero means the lifetime with which it was
// created. A running sandbox stays as it is, and its end does not come earlier.
func (s *Sandbox) Resume(ctx context.Context, d time.Duration) error {
	_, err := s.change(ctx, http.MethodPost, "/resume", api.Resume{TimeoutSeconds: d.Seconds()})
	return err
}

// ResumeFiles is Resume without memory and processes, even if they were saved: the sandbox boots
// again with its files.
func (s *Sandbox) ResumeFiles(ctx context.Context, d time.Duration) error {
	_, err := s.change(ctx, http.MethodPost, "/resume", api.Resume{FilesOnly: true, TimeoutSeconds: d.Seconds()})
	return err
}

// Snapshot saves the state of a running sandbox under an ID and, if the request has one, a name.
// The sandbox pauses briefly, then continues. The ID or the name can be used as a Template for new
// sandboxes, and with Rollback. If the disk budget for saved states is used up, the error is an
// ErrExhausted with the code "snapshot_budget".
func (s *Sandbox) Snapshot(ctx context.Context, req api.CreateSnapshot) (api.Snapshot, error) {
	var out api.Snapshot
	err := s.client.call(ctx, http.MethodPost, s.path("/snapshots"), req, &out)
	return out, err
}

// Rollback returns the sandbox to a snapshot of the caller, by ID or name. The sandbox keeps its
// ID, name and tokens. All later changes are lost, and its connections are closed. If the snapshot
// does not exist, the error is an ErrNotFound with the code "snapshot_not_found".
func (s *Sandbox) Rollback(ctx context.Context, snapshot string) error {
	_, err := s.change(ctx, http.MethodPost, "/rollback", api.Rollback{Snapshot: snapshot})
	return err
}

// Reset returns the sandbox to its initial state: the snapshot from which it was created, or a
// fresh boot of its template.
func (s *Sandbox) Reset(ctx context.Context) error {
	_, err := s.change(ctx, http.MethodPost, "/reset", nil)
	return err
}

// Fork copies a running sandbox in its present state one to 100 times, with memory and processes
// unless the request has FilesOnly. Each copy has an ID, tokens and a host name of its own. If some
// copies fail, Fork returns the others together with an error that joins the errors of the failed
// ones.
func (s *Sandbox) Fork(ctx context.Context, req api.CreateFork) ([]*Sandbox, error) {
	var out api.ForkList
	if err := s.client.call(ctx, http.MethodPost, s.path("/fork"), req, &out); err != nil {
		return nil, err
	}
	var copies []*Sandbox
	var problems []error
	for i, f := range out.Forks {
		switch {
		case f.Sandbox != nil:
			copies = append(copies, &Sandbox{client: s.client, info: *f.Sandbox})
		case f.Error != nil:
			p := f.Error
			problems = append(problems, fmt.Errorf("copy %d: %w", i+1, &Error{Kind: p.Kind, Code: p.Code, Message: p.Detail, Hint: p.Hint}))
		}
	}
	return copies, errors.Join(problems...)
}
