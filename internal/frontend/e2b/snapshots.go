package e2b

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Snapshots takes, finds and removes snapshots.
type Snapshots interface {
	Snapshot(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, caller sandbox.Principal, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error)
	FindSnapshot(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, caller sandbox.Principal, ref string) error
}

// snapshotBody is a snapshot in the API. Its ID is a template reference.
type snapshotBody struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

// snapshotBodyOf adds the default tag to IDs and names, as clients expect. There are no other tags:
// a name means its newest snapshot.
func snapshotBodyOf(s sandbox.Snapshot) snapshotBody {
	body := snapshotBody{SnapshotID: s.ID + ":" + sandbox.DefaultTag, Names: []string{}}
	if s.Name != "" {
		body.Names = append(body.Names, s.Name+":"+sandbox.DefaultTag)
	}
	return body
}

func (a *api) snapshotRoutes() {
	a.handle("POST /sandboxes/{id}/snapshots", a.snapshot)
	a.handle("GET /snapshots", a.listSnapshots)
	// A slash in a reference may be escaped or not.
	a.handle("DELETE /templates/{ref...}", a.removeSnapshot)
}

// snapshot takes a snapshot of a running sandbox, which then continues.
func (a *api) snapshot(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	name, err := snapshotName(body.Name)
	if err != nil {
		return err
	}
	found, err := a.running(r, caller)
	if err != nil {
		return err
	}
	taken, err := a.Snapshots.Snapshot(r.Context(), caller, found.ID, sandbox.SnapshotRequest{Name: name})
	if err != nil {
		return notFoundAs(err, found.ID)
	}
	writeJSON(w, http.StatusCreated, snapshotBodyOf(taken))
	return nil
}

// snapshotName parses the name or ID of a snapshot, which clients write like a template's. An
// unknown tag or namespace is refused, because the name without it would mean another snapshot.
func snapshotName(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	ref, err := sandbox.ParseReference(s)
	if err != nil {
		return "", err
	}
	if ref.Namespace != "" || ref.Tag != sandbox.DefaultTag {
		return "", notSupported("a snapshot's namespace or tag")
	}
	return ref.Name, nil
}

func (a *api) listSnapshots(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	f, err := parseSnapshotQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	page, err := a.snapshotPage(r.Context(), caller, f)
	if err != nil {
		return err
	}
	if n := len(page.Snapshots); page.More && n > 0 {
		last := page.Snapshots[n-1]
		w.Header().Set("X-Next-Token", pageToken{after: last.CreatedAt, id: last.ID}.String())
	}
	bodies := make([]snapshotBody, 0, len(page.Snapshots))
	for _, s := range page.Snapshots {
		bodies = append(bodies, snapshotBodyOf(s))
	}
	writeJSON(w, http.StatusOK, bodies)
	return nil
}

// snapshotPage returns a page of the matching snapshots. The filter's name may be an ID as well.
func (a *api) snapshotPage(ctx context.Context, caller sandbox.Principal, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	if f.Name == "" {
		return a.Snapshots.Snapshots(ctx, caller, f)
	}
	found, err := a.Snapshots.FindSnapshot(ctx, caller, f.Name)
	switch {
	case fault.KindOf(err) == fault.NotFound && err != nil, err == nil && found.ID != f.Name:
		return a.Snapshots.Snapshots(ctx, caller, f)
	case err != nil:
		return sandbox.SnapshotPage{}, err
	case f.AfterID != "", f.Sandbox != "" && f.Sandbox != found.Sandbox:
		return sandbox.SnapshotPage{}, nil
	}
	return sandbox.SnapshotPage{Snapshots: []sandbox.Snapshot{found}}, nil
}

func parseSnapshotQuery(raw string) (sandbox.SnapshotFilter, error) {
	values, err := queryOf(raw)
	if err != nil {
		return sandbox.SnapshotFilter{}, err
	}
	var f sandbox.SnapshotFilter
	if s := values.Get("sandboxID"); s != "" {
		if f.Sandbox, err = sandboxID(s); err != nil {
			return sandbox.SnapshotFilter{}, err
		}
	}
	if f.Name, err = snapshotName(values.Get("name")); err != nil {
		return sandbox.SnapshotFilter{}, err
	}
	if f.Limit, err = parseLimit(values.Get("limit"), maxPage, maxPage); err != nil {
		return sandbox.SnapshotFilter{}, err
	}
	if s := values.Get("nextToken"); s != "" {
		t, err := parsePageToken(s, false)
		if err != nil {
			return sandbox.SnapshotFilter{}, err
		}
		f.AfterTime, f.AfterID = t.after, t.id
	}
	return f, nil
}

// removeSnapshot removes a snapshot or a template. In this API snapshots are templates.
func (a *api) removeSnapshot(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	found, ref, err := a.findSnapshot(r, caller)
	if fault.KindOf(err) == fault.NotFound {
		err = a.removeTemplate(r.Context(), caller, ref)
		if fault.KindOf(err) == fault.NotFound && a.Builds != nil {
			if found, dropped := a.Builds.Drop(caller, ref.Name); found || dropped != nil {
				err = dropped
			}
		}
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	if err != nil {
		return err
	}
	err = a.Snapshots.RemoveSnapshot(r.Context(), caller, found.ID)
	if fault.KindOf(err) == fault.NotFound {
		return sandbox.TemplateUnknown(ref)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// findSnapshot finds the snapshot in a path. An invalid name is "not found", like one that does not
// exist.
func (a *api) findSnapshot(r *http.Request, caller sandbox.Principal) (sandbox.Snapshot, sandbox.Reference, error) {
	ref, err := sandbox.ParseReference(r.PathValue("ref"))
	if err != nil {
		return sandbox.Snapshot{}, ref, err
	}
	if ref.Namespace != "" || ref.Tag != sandbox.DefaultTag {
		return sandbox.Snapshot{}, ref, sandbox.TemplateUnknown(ref)
	}
	found, err := a.Snapshots.FindSnapshot(r.Context(), caller, ref.Name)
	return found, ref, err
}
