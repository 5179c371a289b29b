package templatebuild

import (
	"errors"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/build/records"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// State is the progress of a build.
type State string

// States of a build, by their names in E2B's API.
const (
	Waiting  State = "waiting" // waits for its steps
	Building State = "building"
	Ready    State = "ready"
	Failed   State = "error"
)

// Record is the stored description of a build.
type Record struct {
	ID                string // a UUID
	Template          string // the template's ID
	Name              string // [namespace/]name of the template
	Tags              []string
	Owner             string
	Limits            sandbox.Limits
	State             State
	Created, Finished time.Time
	Error, Code       string
	Step              string // the failed step: its number from 1, "base" or "finalize"; "" if none failed
	Process           sandbox.Process
}

// Ended reports whether the build has ended.
func (r Record) Ended() bool { return r.State == Ready || r.State == Failed }

// Summary implements records.Record.
func (r Record) Summary() records.Summary {
	return records.Summary{ID: r.ID, Owner: r.Owner, Created: r.Created, Ended: r.Ended(), Process: r.Process}
}

// end records how a build ended. A nil error means success.
func (r *Record) end(err error, step string) {
	r.State, r.Finished = Ready, time.Now().UTC().Round(0)
	if err != nil {
		r.State, r.Error, r.Code, r.Step = Failed, textOf(err), fault.CodeOf(err), step
	}
}

// textOf returns an error together with its hint, for a client that shows one text.
func textOf(err error) string {
	text := fault.PublicText(err)
	if hint := fault.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return text
}

// List returns the builds of a caller, the newest first.
func (s *Service) List(caller sandbox.Principal) ([]Record, error) {
	return s.records.ListFor(caller)
}

// Status returns a build and the entries of its log from an offset, at most limit of them.
func (s *Service) Status(caller sandbox.Principal, template, id string, offset, limit int) (Record, []Entry, error) {
	s.mu.Lock()
	l, err := s.findOwn(caller, template, id)
	if err == nil {
		r, entries := l.record, l.log.from(offset, limit)
		s.mu.Unlock()
		return r, entries, nil
	}
	s.mu.Unlock()
	all, err := s.List(caller)
	if err != nil {
		return Record{}, nil, err
	}
	i := slices.IndexFunc(all, func(r Record) bool { return r.ID == id && r.Template == template })
	if i < 0 {
		return Record{}, nil, notFound(id)
	}
	entries, err := readEntries(s.records.Dir, id)
	return all[i], page(entries, offset, limit), err
}

// Drop cancels the builds of a template and forgets those that have ended. It reports whether there
// were any.
func (s *Service) Drop(caller sandbox.Principal, template string) (bool, error) {
	all, err := s.List(caller)
	if err != nil {
		return false, err
	}
	found := false
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		if r.Template != template {
			continue
		}
		found = true
		l := s.live[r.ID]
		canceled := fault.New(fault.Canceled, "build_canceled", "its template was removed")
		switch {
		case l == nil:
			errs = append(errs, s.records.Remove(r.ID))
		case l.cancel != nil:
			l.cancel(canceled)
		default:
			delete(s.live, r.ID)
			s.finish(l, canceled, "")
		}
	}
	return found, errors.Join(errs...)
}
