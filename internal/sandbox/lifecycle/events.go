package lifecycle

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// surveyTimeout bounds how long an end waits for what became of files, and
// for the rest of what was written down.
const surveyTimeout = 5 * time.Second

// openSpools begins to take in what engine and causeway write down.
func (s *Service) openSpools(dir string) error {
	if dir == "" {
		return nil
	}
	forms := []ingest.Form{ingest.Events(dir, events.Free)}
	if s.flows != nil {
		forms = append(forms, ingest.Flows(s.flows.Path()))
	}
	var err error
	s.spools, err = ingest.Open(ingest.Options{Record: s.audit.Recorder(), Forms: forms, Hide: func(ctx context.Context, id string) (ingest.Hide, error) {
		return s.access.Unseen(ctx, id)
	}, Log: s.log})
	return err
}

// events opens the file into which the engine writes what programs do; nil is
// none. The caller closes it.
func (s *Service) events(r sandbox.Row) (*os.File, error) {
	if s.spools == nil {
		return nil, nil
	}
	f, err := s.spools.Create(r.ID)
	if err != nil {
		return nil, err
	}
	if s.observer(r.Engine) == nil {
		return nil, f.Close() // an engine that sees nothing takes none
	}
	return f, nil
}

// retainMask keeps what to redact of a sandbox whose events are still to be read.
func (s *Service) retainMask(id string) {
	if s.spools != nil {
		s.access.Retain(id)
	}
}

// survey lets the engine write down what became of files. It is called before
// a machine ends, which it does not keep from ending.
func (s *Service) survey(ctx context.Context, id string) {
	if s.spools == nil {
		return
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return // what has no row has no file either
	}
	o := s.observer(r.Engine)
	if o == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), surveyTimeout)
	defer cancel()
	err = o.Survey(ctx, id)
	if err == nil || isUnknown(err) { // it runs no more
		return
	}
	s.log.Warn("files of a sandbox not looked at", "sandbox", id, "err", err)
	s.audit.AppendAnyway(ctx, audit.Draft{Kind: audit.Gap, Sandbox: id, Actor: auditlog.Server, Data: ingest.Gap{Of: "events", Reason: "survey"}})
}

// drain takes in the rest of what was written down. What the record refuses
// stays in the files, and is taken in when it works again.
func (s *Service) drain(ctx context.Context, id string, last bool) bool {
	if s.spools == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), surveyTimeout)
	defer cancel()
	if err := errors.Join(s.spools.Drain(ctx, id, last), s.spools.Leave(id)); err != nil {
		s.log.Warn("what a sandbox did is not in the record yet", "sandbox", id, "err", err)
		s.behind.Store(true)
		return false
	}
	s.access.Release(id)
	return true
}

// close ingests the remaining events of a sandbox that is ending. A warm sandbox that
// was never handed out has no owner, so the events of its programs are dropped.
func (s *Service) close(ctx context.Context, r sandbox.Row) (all bool, err error) {
	if r.State == sandbox.Waiting {
		return false, s.unspool(r.ID)
	}
	return r.ID != "" && s.drain(ctx, r.ID, true), nil
}

// forget removes a sandbox's files, once all of them is in the record. What
// cannot be taken in now is looked at again by catchUp.
func (s *Service) forget(ctx context.Context, id string) error {
	if s.spools == nil {
		return s.unspool(id)
	}
	if left, err := s.spools.Has(id); err != nil || !left {
		return errors.Join(err, s.unspool(id))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), surveyTimeout)
	defer cancel()
	if err := s.spools.Drain(ctx, id, true); err != nil {
		s.log.Warn("what a sandbox did is not in the record yet", "sandbox", id, "err", err)
		s.behind.Store(true)
		return s.spools.Leave(id)
	}
	return s.unspool(id)
}

// unspool removes a sandbox's files.
func (s *Service) unspool(id string) error {
	var err error
	if s.spools != nil {
		err = s.spools.Remove(id)
	}
	if s.flows != nil {
		err = errors.Join(err, s.flows.Remove(id))
	}
	return err
}

// retake is catchUp where something is known to be left.
func (s *Service) retake(ctx context.Context) error {
	if !s.behind.Swap(false) {
		return nil
	}
	return s.catchUp(ctx)
}

// catchUp ingests the written events of sandboxes that no goroutine follows, and
// removes the event files of sandboxes that no longer exist.
func (s *Service) catchUp(ctx context.Context) error {
	if s.spools == nil {
		return nil
	}
	ids, err := s.spools.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if _, live := s.known(id); live {
			continue
		}
		errs = append(errs, s.locked(ctx, id, s.catchUpOne))
	}
	return errors.Join(errs...)
}

func (s *Service) catchUpOne(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	switch {
	case isUnknown(err):
		return s.forget(ctx, id)
	case err != nil:
		return err
	case r.State == sandbox.Stopped || r.State == sandbox.Paused:
		if s.drain(ctx, id, r.State == sandbox.Stopped) && r.State == sandbox.Stopped {
			return s.spools.Remove(id)
		}
	}
	return nil
}

// Unseen is what must not be seen in what the audit log is told of a sandbox.
// After an error nothing that its programs choose may be told.
func (s *Service) Unseen(ctx context.Context, id string) (func(string) string, error) {
	return s.access.Unseen(ctx, id)
}
