// Package audittest owns a record in memory, for tests of what writes into
// one: it holds what it was given, and fails where a test says so.
package audittest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
)

// Record is a record in memory. The zero value is ready.
type Record struct {
	mu      sync.Mutex
	entries []audit.Entry
	durable int
	fail    func(audit.Draft) bool
	appends int
}

var _ audit.Recorder = (*Record)(nil)

// Fail says which drafts are refused from now on; nil is none.
func (r *Record) Fail(f func(audit.Draft) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// Append implements audit.Recorder.
func (r *Record) Append(_ context.Context, drafts ...audit.Draft) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appends++
	if err := r.add(drafts); err != nil {
		return err
	}
	r.durable = len(r.entries)
	return nil
}

// Note implements audit.Recorder.
func (r *Record) Note(drafts ...audit.Draft) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(drafts)
}

func (r *Record) add(drafts []audit.Draft) error {
	for _, d := range drafts {
		if r.fail != nil && r.fail(d) {
			return Unavailable()
		}
	}
	for _, d := range drafts {
		var data json.RawMessage
		if d.Data != nil {
			var err error
			if data, err = json.Marshal(d.Data); err != nil {
				return err
			}
		}
		if d.Time.IsZero() {
			d.Time = time.Now()
		}
		r.entries = append(r.entries, audit.Entry{
			Seq: int64(len(r.entries)), Time: d.Time, Kind: d.Kind, Sandbox: d.Sandbox, Actor: d.Actor,
			Data: data, Source: d.Source, At: d.At,
		})
	}
	return nil
}

// Unavailable is how a record refuses.
func Unavailable() error {
	return fault.New(fault.Unavailable, "record_unavailable", "the audit log cannot be written")
}

// Position implements audit.Recorder.
func (r *Record) Position(_ context.Context, source string) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range slices.Backward(r.entries) {
		if v.Source == source {
			return v.At, nil
		}
	}
	return 0, nil
}

// Checkpoint implements audit.Recorder. Nothing is signed.
func (r *Record) Checkpoint(context.Context) (audit.Checkpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return audit.Checkpoint{Size: int64(len(r.entries)), Root: "in memory", Note: "in memory\n"}, nil
}

// Entries are those of the kinds, or all, oldest first.
func (r *Record) Entries(kinds ...audit.Kind) []audit.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []audit.Entry
	for _, e := range r.entries {
		wanted := len(kinds) == 0
		for _, k := range kinds {
			wanted = wanted || e.Kind == k
		}
		if wanted {
			out = append(out, e)
		}
	}
	return out
}

// Crash forgets what was noted and is not durable, as a process does that is
// killed.
func (r *Record) Crash() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = r.entries[:r.durable]
}

// Appends counts the calls that waited for the disk.
func (r *Record) Appends() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.appends
}
