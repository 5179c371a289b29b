// Package audittest owns an audit log in memory for tests. It stores the entries, and fails when a
// test requests that.
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

// Log is an audit log in memory. The zero value is ready for use.
type Log struct {
	mu      sync.Mutex
	entries []audit.Entry
	durable int                    // number of durable entries
	fail    func(audit.Draft) bool // reports whether to reject a draft for now
	refuse  func(audit.Draft) bool // reports whether a draft is invalid
	appends int
}

var _ audit.Recorder = (*Log)(nil)

// Fail makes the log reject the drafts for which f returns true, from now on. A nil f rejects none.
func (r *Log) Fail(f func(audit.Draft) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// Refuse makes the log treat the drafts for which f returns true as invalid.
func (r *Log) Refuse(f func(audit.Draft) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = f
}

// Append implements audit.Recorder.
func (r *Log) Append(_ context.Context, drafts ...audit.Draft) error {
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
func (r *Log) Note(drafts ...audit.Draft) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(drafts)
}

func (r *Log) add(drafts []audit.Draft) error {
	for _, d := range drafts {
		if r.fail != nil && r.fail(d) {
			return Unavailable()
		}
		if r.refuse != nil && r.refuse(d) {
			return fault.New(fault.Invalid, "entry_invalid", "the entry can never be stored")
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

// Unavailable returns the fault with which a Log rejects drafts.
func Unavailable() error {
	return fault.New(fault.Unavailable, "record_unavailable", "the audit log cannot be written")
}

// Position implements audit.Recorder.
func (r *Log) Position(_ context.Context, source string) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range slices.Backward(r.entries) {
		if v.Source == source {
			return v.At, nil
		}
	}
	return 0, nil
}

// Checkpoint implements audit.Recorder. It signs nothing.
func (r *Log) Checkpoint(context.Context) (audit.Checkpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return audit.Checkpoint{Size: int64(len(r.entries)), Root: "in memory", Note: "in memory\n"}, nil
}

// Entries returns the entries of the given kinds, or all entries if no kind is given, oldest first.
func (r *Log) Entries(kinds ...audit.Kind) []audit.Entry {
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

// Crash removes the noted entries that are not durable, like the end of a process by kill -9.
func (r *Log) Crash() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = r.entries[:r.durable]
}

// Appends returns the number of calls that waited for the disk.
func (r *Log) Appends() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.appends
}
