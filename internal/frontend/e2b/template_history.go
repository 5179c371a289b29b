package e2b

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// historyBody is one build of a template.
type historyBody struct {
	BuildID    string     `json:"buildID"`
	Status     string     `json:"status"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	CPUCount   int64      `json:"cpuCount"`
	MemoryMB   int64      `json:"memoryMB"`
	DiskSizeMB int64      `json:"diskSizeMB"`
}

func historyBodyOf(id, status string, created, ended time.Time, l engine.Limits) historyBody {
	set := l.OrDefault()
	b := historyBody{
		BuildID: id, Status: status, CreatedAt: wireTime(created), UpdatedAt: wireTime(created),
		CPUCount: wholeCPUs(l), MemoryMB: set.MemoryBytes >> 20, DiskSizeMB: set.DiskBytes >> 20,
	}
	if !ended.IsZero() {
		b.UpdatedAt = wireTime(ended)
		b.FinishedAt = &b.UpdatedAt
	}
	return b
}

// templateWithBuilds answers with a template and its builds: builds of this API, and versions that
// were created by other means.
func (a *api) templateWithBuilds(w http.ResponseWriter, r *http.Request, caller sandbox.Principal, name string) error {
	t, err := a.UserTemplates.Inspect(caller, name)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	records, listErr := a.Builds.List(caller)
	if listErr != nil {
		return listErr
	}
	records = slices.DeleteFunc(records, func(b templatebuild.Record) bool {
		return b.Template != t.ID && (t.ID != "" || b.Template != name && b.Name != name)
	})
	if t.ID == "" {
		if len(records) == 0 {
			return err
		}
		// The template does not exist yet: its first build has not ended, or has failed.
		t.ID, t.Name, t.Owner, t.Created = records[0].Template, records[0].Name, records[0].Owner, records[len(records)-1].Created
	}
	var builds []historyBody
	known := map[string]bool{}
	for _, b := range records {
		known[b.ID] = true
		builds = append(builds, historyBodyOf(b.ID, string(b.State), b.Created, b.Finished, b.Limits.Limits))
	}
	for _, v := range t.Versions {
		if id := t.BuildOf(v); !known[id] && v.Maker == nil {
			builds = append(builds, historyBodyOf(id, string(templatebuild.Ready), v.Created, v.Created, v.Limits.Limits))
		}
	}
	slices.SortFunc(builds, func(x, y historyBody) int { return newestFirst(x.CreatedAt, x.key(), y.CreatedAt, y.key()) })
	builds, err = pageOf(w, r, builds, func(b historyBody) (time.Time, string) { return b.CreatedAt, b.key() })
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		templateBody
		Builds []historyBody `json:"builds"`
	}{templateBodyOf(t), append([]historyBody{}, builds...)})
	return nil
}

// key returns the build's ID in the form that a page token accepts.
func (b historyBody) key() string { return strings.ReplaceAll(b.BuildID, "-", "") }

// buildLogs answers with a part of a build's log, forward or backward from a time.
func (a *api) buildLogs(w http.ResponseWriter, r *http.Request, caller sandbox.Principal, template, id string) error {
	q, err := parseLogQuery(r.URL.RawQuery, "cursor")
	if err != nil {
		return err
	}
	const all = 1 << 30
	_, entries, err := a.Builds.Status(caller, template, id, 0, all)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e templatebuild.Entry) bool {
		at := e.Time.Truncate(time.Millisecond)
		outside := !q.cursor.IsZero() && (q.backward && at.After(q.cursor) || !q.backward && at.Before(q.cursor))
		return outside || slices.Index(levels, e.Level) < q.level
	})
	if q.backward {
		slices.Reverse(entries)
	}
	writeJSON(w, http.StatusOK, map[string][]buildEntry{"logs": buildEntriesOf(entries[:min(q.limit, len(entries))])})
	return nil
}
