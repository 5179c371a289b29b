package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/control"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// SetTimeout lets the sandbox end after d from now, shorter or longer. Zero
// ends it now.
func (s *Service) SetTimeout(ctx context.Context, who sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, error) {
	return s.setEnd(ctx, who, ref, d, false)
}

// Extend lets the sandbox end after d from now if that is later than its end.
func (s *Service) Extend(ctx context.Context, who sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, error) {
	return s.setEnd(ctx, who, ref, d, true)
}

func (s *Service) setEnd(ctx context.Context, who sandbox.Principal, ref string, d time.Duration, onlyLater bool) (sandbox.Sandbox, error) {
	if d < 0 {
		return sandbox.Sandbox{}, fault.New(fault.Invalid, "timeout_invalid", "Timeout must not be negative")
	}
	if err := s.checkTimeout(who, d); err != nil {
		return sandbox.Sandbox{}, err
	}
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	unlock, err := s.locks.acquire(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	if err := s.engines.mustServe(r); err != nil {
		return sandbox.Sandbox{}, err
	}
	if d == 0 && !onlyLater {
		return s.endNow(ctx, r.ID)
	}
	changed, err := s.store.SetEnd(ctx, r.ID, time.Now().Add(d), onlyLater)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if r, err = s.store.Get(ctx, r.ID); err != nil {
		return sandbox.Sandbox{}, err
	}
	if r.State != sandbox.Running {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	if changed {
		s.ends(r)
		s.tell(ctx, r)
		s.note(ctx, r.ID, "info", "end changed", map[string]string{"end_at": r.EndAt.Format(time.RFC3339Nano)})
	}
	return r.Shown(), nil
}

// endNow ends a running or paused sandbox because somebody said so: only the clock
// ends one for its time. The lock of the ID must be held.
func (s *Service) endNow(ctx context.Context, id string) (sandbox.Sandbox, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer stop()
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	// A sandbox that is being paused or resumed is the concern of the operation that
	// does so.
	if r.State != sandbox.Running && r.State != sandbox.Creating && r.State != sandbox.Paused {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	began, err := s.end(ctx, id, sandbox.ReasonKilled, time.Time{})
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if r, err = s.store.Get(ctx, id); err != nil {
		return sandbox.Sandbox{}, err
	}
	if !began {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	return r.Shown(), nil
}

// ends gives the clock the end that the row has.
func (s *Service) ends(r sandbox.Row) {
	s.mu.Lock()
	if b := s.live[r.ID]; b != nil {
		b.record.EndAt, b.notBefore = r.EndAt, time.Time{}
	}
	delete(s.put, r.ID)
	s.mu.Unlock()
	s.rouse()
}

// tellTimeout bounds how long a request waits for the guest to hear of its
// new end.
const tellTimeout = 2 * time.Second

// tell gives the guest its end, which it keeps by itself if no daemon is
// there. The row is the truth: if the guest does not answer, the attendant
// tells it again. The lock of the ID must be held, so that an older end does
// not overtake.
func (s *Service) tell(ctx context.Context, r sandbox.Row) {
	if r.OnEnd.Pause {
		return // it knows of no end, which it would make
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	err := s.update(ctx, r, guest.Update{EndAt: &r.EndAt})
	if err != nil {
		s.log.Warn("guest did not hear of its end", "sandbox", r.ID, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.live[r.ID]; b != nil {
		b.owed = err != nil
	}
}

// update posts a change to the guest's control service.
func (s *Service) update(ctx context.Context, r sandbox.Row, u guest.Update) error {
	body, err := json.Marshal(u)
	if err != nil {
		return err
	}
	res, err := s.control(ctx, r, http.MethodPost, guest.PathUpdate, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("guest answered %s", res.Status)
	}
	return nil
}

// control asks the guest's control service. The caller bounds what it reads.
func (s *Service) control(ctx context.Context, r sandbox.Row, method, path string, body io.Reader) (*http.Response, error) {
	req, err := control.Request(ctx, r.ControlToken, method, path, body)
	if err != nil {
		return nil, err
	}
	return control.Once(func(ctx context.Context) (net.Conn, error) {
		e, err := s.engines.Of(r.Engine)
		if err != nil {
			return nil, err
		}
		return e.Dial(ctx, r.ID, guestboot.Port)
	}).RoundTrip(req)
}
