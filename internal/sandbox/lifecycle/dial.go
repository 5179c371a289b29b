package lifecycle

import (
	"context"
	"fmt"
	"net"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// codePortClosed is the engine's code for a port without a listener. The error implies that the
// instance exists.
const codePortClosed = "port_closed"

// Dial opens a stream to a port inside.
func (s *Service) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fault.Newf(fault.Invalid, "port_invalid", "port %d is not from 1 to 65535", port)
	}
	if _, ok := s.Live(id); !ok {
		return nil, s.notRunningHere(ctx, id, nil)
	}
	b, r := s.live.find(id)
	if b == nil {
		return nil, s.notRunningHere(ctx, id, nil)
	}
	e, err := s.engines.Of(r.Engine)
	if err != nil {
		return nil, err
	}
	conn, err := e.Dial(ctx, id, port)
	if err != nil {
		return nil, s.dialError(ctx, b, r.Run, err)
	}
	return &stream{conn, b.gone}, nil
}

// dialError translates the error of a failed dial. If the instance is being replaced or saved, the
// engine's error is about that instance and not about the sandbox.
func (s *Service) dialError(ctx context.Context, b *liveSandbox, run int64, cause error) error {
	ended := b.hasEnded()
	if !ended && fault.CodeOf(cause) == codePortClosed || ctx.Err() != nil || s.work.ctx.Err() != nil {
		return cause
	}
	r, err := s.store.Get(ctx, b.id)
	switch {
	case err != nil:
		return s.notRunningHere(ctx, b.id, cause)
	case ended || r.State != sandbox.Running || r.Run != run:
		return instanceReplaced(r, cause)
	case fault.KindOf(cause) == fault.Internal:
		s.log.Warn("sandbox not reached", "sandbox", b.id, "err", cause)
		return fault.Wrap(cause, fault.Unavailable, "sandbox_unreachable", "the sandbox cannot be reached now")
	}
	return cause
}

// notRunningHere returns the error for a sandbox that is not running here. Only a sandbox that no
// longer exists is NotFound, because callers treat NotFound as its end.
func (s *Service) notRunningHere(ctx context.Context, id string, cause error) error {
	if !idPattern.MatchString(id) {
		return sandbox.Unknown(id)
	}
	r, err := s.store.Get(ctx, id)
	switch {
	case err == nil:
		if err := s.engines.checkServed(r); err != nil {
			return err
		}
		return instanceReplaced(r, cause)
	case isUnknown(err):
		return err
	case ctx.Err() != nil:
		return canceled(context.Cause(ctx))
	case s.work.ctx.Err() != nil:
		return shuttingDown()
	}
	return err
}

// instanceReplaced returns the error for a row with another instance than the requested one.
// Nothing was sent into it.
func instanceReplaced(r sandbox.Row, cause error) error {
	switch r.State {
	case sandbox.Pausing, sandbox.Resuming:
		return fault.Wrap(cause, fault.Conflict, sandbox.CodeChanged, fmt.Sprintf("Sandbox \"%s\" is %s; try again", r.ID, r.State))
	case sandbox.Running, sandbox.Paused, sandbox.Stopping, sandbox.Stopped:
		return stateConflict(r)
	case sandbox.Creating, sandbox.Waiting: // the sandbox has no owner yet, or is not ready
	}
	return sandbox.Unknown(r.ID)
}
