package templatebuild

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
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

// Record is what is stored about a build.
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
	Step              string // that failed: its number from 1, "base", "finalize" or ""
	Process           sandbox.Process
}

// Ended reports whether nothing of the build runs any more.
func (r Record) Ended() bool { return r.State == Ready || r.State == Failed }

// end notes how a build ended; nil is success.
func (r *Record) end(err error, step string) {
	r.State, r.Finished = Ready, time.Now().UTC().Round(0)
	if err != nil {
		r.State, r.Error, r.Code, r.Step = Failed, textOf(err), fault.CodeOf(err), step
	}
}

// textOf returns an error with the hint what to do next, for a client that shows one text.
func textOf(err error) string {
	text := fault.PublicText(err)
	if hint := fault.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return text
}

// records are files: two for each build, of which one is its log.
type records struct{ dir string }

// maxRecords is how many ended builds are remembered.
const maxRecords = 200

func (rs *records) put(r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(rs.dir, r.ID+".json"), data, durable.Options{Draft: ".record-*", Mode: 0o600, Sync: true})
}

func (rs *records) remove(id string) error {
	var errs []error
	for _, name := range []string{id + ".log", id + ".json"} {
		if err := os.Remove(filepath.Join(rs.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// list returns the builds, the newest first, and drops the oldest if there are too many.
func (rs *records) list() ([]Record, error) {
	entries, err := os.ReadDir(rs.dir)
	if err != nil {
		return nil, err
	}
	var list []Record
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		data, err := os.ReadFile(filepath.Join(rs.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r Record
		if json.Unmarshal(data, &r) == nil && r.ID == id {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return b.Created.Compare(a.Created) })
	for i := maxRecords; i < len(list); i++ {
		if list[i].Ended() {
			_ = rs.remove(list[i].ID) // the next list tries again
		}
	}
	return list, nil
}

// List returns the builds of a caller, the newest first.
func (s *Service) List(caller sandbox.Principal) ([]Record, error) {
	all, err := s.records.list()
	return slices.DeleteFunc(all, func(r Record) bool { return !caller.Local && r.Owner != caller.KeyID }), err
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
		return Record{}, nil, unknown(id)
	}
	entries, err := s.records.entries(id)
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
			errs = append(errs, s.records.remove(r.ID))
		case l.cancel != nil:
			l.cancel(canceled)
		default:
			delete(s.live, r.ID)
			s.finish(l, canceled, "")
		}
	}
	return found, errors.Join(errs...)
}
