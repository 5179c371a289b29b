package crannog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/crannog/crannog/api"
)

// OnEnd sets what happens when the sandbox's time is up, such as
// api.OnEnd{Pause: true}. Without it the sandbox ends.
func OnEnd(o api.OnEnd) CreateOption { return func(r *api.CreateSandbox) { r.OnEnd = &o } }

// Pause writes the sandbox down, memory, processes and files, and ends its
// processes. It keeps its ID, name and tokens, and uses no memory. Connections
// into it and out of it are cut. One that is paused already is an ErrConflict
// with the code "sandbox_paused".
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.change(ctx, http.MethodPost, "/pause", api.Pause{})
	return err
}

// PauseFiles is Pause without memory and processes: the sandbox boots anew
// when it is resumed.
func (s *Sandbox) PauseFiles(ctx context.Context) error {
	_, err := s.change(ctx, http.MethodPost, "/pause", api.Pause{FilesOnly: true})
	return err
}

// Resume lets a paused sandbox go on where it was, for d, zero being the time
// that it was made with. One that runs stays as it is, and its end does not
// come earlier.
func (s *Sandbox) Resume(ctx context.Context, d time.Duration) error {
	_, err := s.change(ctx, http.MethodPost, "/resume", api.Resume{TimeoutSeconds: d.Seconds()})
	return err
}

// ResumeFiles is Resume without memory and processes, also if they were kept:
// the sandbox boots anew, with its files.
func (s *Sandbox) ResumeFiles(ctx context.Context, d time.Duration) error {
	_, err := s.change(ctx, http.MethodPost, "/resume", api.Resume{FilesOnly: true, TimeoutSeconds: d.Seconds()})
	return err
}

// Snapshot keeps the state of a running sandbox under an ID and, if the request
// has one, a name. The sandbox pauses briefly, then continues. The ID or the
// name is a Template for new sandboxes, and what Rollback takes. Where the disk
// budget for states is used up, the error is an ErrExhausted with the code
// "snapshot_budget".
func (s *Sandbox) Snapshot(ctx context.Context, req api.CreateSnapshot) (api.Snapshot, error) {
	var out api.Snapshot
	err := s.client.call(ctx, http.MethodPost, s.path("/snapshots"), req, &out)
	return out, err
}

// Rollback puts the sandbox back to a snapshot of the caller's, by ID or
// name. It keeps its ID, name and tokens; what has happened since is lost,
// and its connections are cut. A snapshot that does not exist is an
// ErrNotFound with the code "snapshot_not_found".
func (s *Sandbox) Rollback(ctx context.Context, snapshot string) error {
	_, err := s.change(ctx, http.MethodPost, "/rollback", api.Rollback{Snapshot: snapshot})
	return err
}

// Reset is Rollback to the sandbox's start: the snapshot that it was made of,
// or a fresh boot of its template.
func (s *Sandbox) Reset(ctx context.Context) error {
	_, err := s.change(ctx, http.MethodPost, "/reset", nil)
	return err
}

// Fork copies a running sandbox as it is now, with memory and processes unless
// the request has FilesOnly, from one to 100 times. Each copy has an ID, tokens and a host name of its own.
// The copies that were made are returned also with an error, which then joins
// what was wrong with each of the others.
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
