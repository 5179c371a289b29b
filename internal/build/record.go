package build

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/build/records"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// State is the progress of a build.
type State string

// States of a build.
const (
	Waiting  State = "waiting" // waits for its context
	Running  State = "running"
	Done     State = "done"
	Failed   State = "failed"
	Canceled State = "canceled"
)

// Record is the stored description of a build.
type Record struct {
	ID, Owner, Tag string
	State          State
	Created, Ended time.Time
	Digest         string // of the image
	// Provenance is the signed statement about the image, if it was requested.
	Provenance  json.RawMessage `json:",omitempty"`
	Error, Code string
	Process     sandbox.Process
}

// Summary implements records.Record.
func (r Record) Summary() records.Summary {
	ended := r.State != Waiting && r.State != Running
	return records.Summary{ID: r.ID, Owner: r.Owner, Created: r.Created, Ended: ended, Process: r.Process}
}

func now() time.Time { return time.Now().UTC().Round(0) }

// end records how a build ended. A nil error means success.
func (r *Record) end(err error) {
	r.State, r.Ended = Done, now()
	if err == nil {
		return
	}
	r.State, r.Error, r.Code = Failed, fault.PublicText(err), fault.CodeOf(err)
	if fault.KindOf(err) == fault.Canceled {
		r.State = Canceled
	}
}

// List returns the builds that a caller may see.
func (s *Service) List(who sandbox.Principal) ([]Record, error) { return s.records.ListFor(who) }

// Get returns one build.
func (s *Service) Get(who sandbox.Principal, id string) (Record, error) {
	all, err := s.List(who)
	if err != nil {
		return Record{}, err
	}
	i := slices.IndexFunc(all, func(r Record) bool { return r.ID == id })
	if i < 0 {
		return Record{}, notFound(id)
	}
	return all[i], nil
}
