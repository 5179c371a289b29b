package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/sandbox"
)

// censusTimeout limits a request to a guest that may be too busy to answer.
const censusTimeout = 10 * time.Second

// Census returns the processes of a sandbox and the ports on which they listen. A program with root
// inside may have replaced the guest, so the answer cannot be trusted. Secret values are redacted
// in it.
func (s *Service) Census(ctx context.Context, caller sandbox.Principal, ref string) (census.Census, error) {
	r, err := s.resolveRunning(ctx, caller, ref)
	if err != nil {
		return census.Census{}, err
	}
	redact, err := s.access.EntryRedactor(ctx, r.ID)
	if err != nil {
		return census.Census{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	res, err := s.engines.askGuest(ctx, r, http.MethodGet, guest.PathCensus, nil)
	if err != nil {
		return census.Census{}, guestFailed(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		// The guest belongs to the version that created the sandbox.
		return census.Census{}, fault.New(fault.Unsupported, "census_unsupported", "the sandbox was created by an earlier version, which cannot list processes").
			WithHint("make a new one")
	}
	if res.StatusCode != http.StatusOK {
		return census.Census{}, guestFailed(fmt.Errorf("the guest answered %s", res.Status))
	}
	c, err := census.Read(res.Body)
	if err != nil {
		return census.Census{}, guestFailed(err)
	}
	for i := range c.Processes {
		p := &c.Processes[i]
		p.User, p.Tag = redact(p.User), redact(p.Tag)
		for j := range p.Args {
			p.Args[j] = redact(p.Args[j])
		}
		if p.Command != nil {
			p.Command.Tag = redact(p.Command.Tag)
			for j := range p.Command.Args {
				p.Command.Args[j] = redact(p.Command.Args[j])
			}
		}
	}
	return c, nil
}

// SignalProcess sends a signal to a process of a sandbox. The number is the process ID inside.
func (s *Service) SignalProcess(ctx context.Context, caller sandbox.Principal, ref string, pid int, sig syscall.Signal) error {
	if pid <= 1 || sig < 1 || sig > 31 {
		return fault.New(fault.Invalid, "invalid_signal", "signals are numbers from 1 to 31, and process IDs must be greater than 1")
	}
	r, err := s.resolveRunning(ctx, caller, ref)
	if err != nil {
		return err
	}
	body, err := json.Marshal(census.Signal{PID: pid, Signal: int(sig)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	res, err := s.engines.askGuest(ctx, r, http.MethodPost, guest.PathSignal, bytes.NewReader(body))
	if err != nil {
		return guestFailed(err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusNotFound:
		return fault.Newf(fault.NotFound, "process_not_found", "there is no process %d", pid)
	}
	return guestFailed(fmt.Errorf("the guest answered %s", res.Status))
}

// resolveRunning finds a sandbox that can answer requests.
func (s *Service) resolveRunning(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Row, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err == nil && r.State != sandbox.Running {
		err = stateConflict(r)
	}
	return r, err
}

func guestFailed(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, "guest_failed", "the sandbox did not answer")
}
