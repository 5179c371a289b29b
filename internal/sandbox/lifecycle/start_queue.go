package lifecycle

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
)

// starts decides when a sandbox may be started: when there is enough space on the disk and a place
// in the queue.
type starts struct {
	queue *admission.Queue
	room  diskroom.Check
}

// admit waits until a sandbox may be started. The caller calls the returned function with the
// start's error when the start is over. A caller that holds a turn must not call admit: with one
// start at a time it would wait for itself. request is the caller's name for the request, or "".
func (s starts) admit(ctx context.Context, r sandbox.Row, request string, always bool) (done func(error), err error) {
	turn, err := s.queue.Admit(ctx, admission.Request{Key: r.Owner, Label: request, Sandbox: r.ID, Always: always})
	if err != nil {
		if ended := context.Cause(ctx); ended != nil && errors.Is(err, ended) {
			err = canceled(err)
		}
		return nil, err
	}
	return func(err error) { turn.Done(err == nil) }, nil
}

// Queue describes the queue of starts as a caller may see it.
type Queue struct {
	admission.Status
	// Positions are the places of the caller's own requests.
	Positions []admission.Position
}

// Queue returns how many sandboxes are being started and how many wait, with the places of the
// caller's own requests. A local caller gets the places of all keys.
func (s *Service) Queue(_ context.Context, caller sandbox.Principal) (Queue, error) {
	if err := caller.Check(); err != nil {
		return Queue{}, err
	}
	return Queue{Status: s.starts.queue.Status(), Positions: s.starts.queue.Positions(caller.KeyID, caller.Local)}, nil
}
