package build

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
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
	Error, Code    string
	Process        sandbox.Process
}

func (r Record) ended() bool { return r.State != Waiting && r.State != Running }

// end records how a build ended. A nil error means success.
func (r *Record) end(err error) {
	r.State, r.Ended = Done, time.Now().UTC().Round(0)
	if err == nil {
		return
	}
	r.State, r.Error, r.Code = Failed, fault.PublicText(err), fault.CodeOf(err)
	if fault.KindOf(err) == fault.Canceled {
		r.State = Canceled
	}
}

// records is a directory with one file for each build.
type records struct{ dir string }

// maxRecords is how many ended builds are stored.
const maxRecords = 200

func (rs *records) put(r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(rs.dir, r.ID+".json"), data, durable.Options{Draft: ".record-*", Mode: 0o600, Sync: true})
}

func (rs *records) get(id string) (r Record, err error) {
	all, err := rs.list()
	if err != nil {
		return r, err
	}
	for _, r := range all {
		if r.ID == id {
			return r, nil
		}
	}
	return r, unknown(id)
}

// list returns the builds, newest first, and removes the oldest if there are too many.
func (rs *records) list() ([]Record, error) {
	files, err := os.ReadDir(rs.dir)
	if err != nil {
		return nil, err
	}
	var list []Record
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".json" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(rs.dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r Record
		if json.Unmarshal(data, &r) == nil && r.ID+".json" == f.Name() {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return b.Created.Compare(a.Created) })
	for i := maxRecords; i < len(list); i++ {
		if list[i].ended() {
			_ = os.Remove(filepath.Join(rs.dir, list[i].ID+".json")) // the next list tries again
		}
	}
	return list, nil
}

// List returns the builds that a caller may see.
func (s *Service) List(caller sandbox.Principal) ([]Record, error) {
	all, err := s.records.list()
	return slices.DeleteFunc(all, func(r Record) bool { return !caller.Local && r.Owner != caller.KeyID }), err
}

// Get returns one build.
func (s *Service) Get(caller sandbox.Principal, id string) (Record, error) {
	r, err := s.records.get(id)
	if err == nil && !caller.Local && r.Owner != caller.KeyID {
		return Record{}, unknown(id)
	}
	return r, err
}
