// Package intake owns the path of events from engines and the egress gateway into the audit log. It
// ingests the events of each sandbox, and keeps their files until all events are in the log.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// lastEventsTimeout limits how long the end of a sandbox waits for the survey of files and for its
// remaining events.
const lastEventsTimeout = 5 * time.Second

// Deps is what a Service needs.
type Deps struct {
	// Dir is where engines write events of sandboxes. Without it nothing is ingested.
	Dir string
	// Flows are the flow files of network attachments, or nil.
	Flows     *flows.Dir
	Audit     *auditlog.Log
	Rows      Rows
	Redactors Redactors
	// Observer returns an engine's ability to write events, or nil.
	Observer func(engine string) engine.Observer
	// Complete reports whether an engine's events include every change.
	Complete func(engine string) bool
	// Live reports whether this process watches a sandbox and follows its event files.
	Live func(id string) bool
	// Locked runs a function while it holds the lock of the sandbox's ID.
	Locked func(ctx context.Context, id string, do func(context.Context, string) error) error
	Log    *slog.Logger
}

// Rows reads the rows of sandboxes.
type Rows interface {
	Get(ctx context.Context, id string) (sandbox.Row, error)
}

// Redactors returns the redactors for events.
type Redactors interface {
	EntryRedactor(ctx context.Context, id string) (func(string) string, error)
	// Retain preserves the redactor of a sandbox that ends, and Release drops it.
	Retain(id string)
	Release(id string)
}

// Service is safe for concurrent use.
type Service struct {
	deps     Deps
	ingester *ingest.Ingester // nil if no events are ingested
	pending  atomic.Bool      // some events were not ingested yet; Retry ingests them
}

// New returns a Service.
func New(d Deps) (*Service, error) {
	s := &Service{deps: d}
	if d.Dir == "" {
		return s, nil
	}
	forms := []ingest.Form{ingest.Events(d.Dir, events.Free)}
	if d.Flows != nil {
		forms = append(forms, ingest.Flows(d.Flows.Path()))
	}
	redactor := func(ctx context.Context, id string) (ingest.Redact, error) { return d.Redactors.EntryRedactor(ctx, id) }
	var err error
	if s.ingester, err = ingest.Open(ingest.Options{Audit: d.Audit.Recorder(), Forms: forms, Redact: redactor, Log: d.Log}); err != nil {
		return nil, fmt.Errorf("open the events of engines: %w", err)
	}
	return s, nil
}

// Close ingests the events that are known to remain, and closes the files.
func (s *Service) Close(ctx context.Context) error {
	if s.ingester == nil {
		return nil
	}
	return errors.Join(s.Retry(context.WithoutCancel(ctx)), s.ingester.Close())
}

// Ingests reports whether the Service ingests events at all.
func (s *Service) Ingests() bool { return s.ingester != nil }

// Flows returns the flow files of network attachments, or nil.
func (s *Service) Flows() *flows.Dir { return s.deps.Flows }

// Follow ingests the events of a running sandbox as they are written.
func (s *Service) Follow(id string) {
	if s.ingester != nil {
		s.ingester.Follow(id)
	}
}

// Leave stops following the events of a sandbox because another process follows them.
func (s *Service) Leave(id string) error {
	if s.ingester == nil {
		return nil
	}
	return s.ingester.Leave(id)
}

// Open opens the file into which the engine writes events, or returns nil if there is none. The
// caller closes it.
func (s *Service) Open(r sandbox.Row) (*os.File, error) {
	if s.ingester == nil {
		return nil, nil
	}
	f, err := s.ingester.Create(r.ID)
	if err != nil {
		return nil, err
	}
	if s.deps.Observer(r.Engine) == nil {
		return nil, f.Close() // such an engine writes no events, so it needs no open file
	}
	return f, nil
}

// Retain preserves the redactor of a sandbox whose events are not all read yet.
func (s *Service) Retain(id string) {
	if s.ingester != nil {
		s.deps.Redactors.Retain(id)
	}
}
