package e2b

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// tagBody is a tag of a template. CreatedAt is the time of the tagged build, because the server
// does not store when a tag was moved.
type tagBody struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (a *api) listTags(w http.ResponseWriter, caller sandbox.Principal, name string) error {
	t, err := a.UserTemplates.Inspect(caller, name)
	if err != nil {
		return err
	}
	bodies := make([]tagBody, 0, len(t.Tags))
	for _, tag := range slices.Sorted(maps.Keys(t.Tags)) {
		if v, ok := t.Tagged(tag); ok {
			bodies = append(bodies, tagBody{tag, t.BuildOf(v), wireTime(v.Created)})
		}
	}
	writeJSON(w, http.StatusOK, bodies)
	return nil
}

// assignTags makes tags refer to the build of another tag.
func (a *api) assignTags(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if body.Target == "" || len(body.Tags) == 0 {
		return fault.New(fault.Invalid, "tags_missing", "target and tags are required")
	}
	t, err := a.UserTemplates.Tag(r.Context(), caller, body.Target, body.Tags)
	if err != nil {
		return err
	}
	v, ok := t.Tagged(body.Tags[0])
	if !ok { // another request removed the tag
		return fault.New(fault.Conflict, "template_removed", "the tag was removed at the same time")
	}
	writeJSON(w, http.StatusCreated, map[string]any{"buildID": t.BuildOf(v), "tags": body.Tags})
	return nil
}

// removeTags removes tags, and each build without another tag.
func (a *api) removeTags(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	ref, err := sandbox.ParseReference(body.Name)
	if err != nil {
		return err
	}
	if len(body.Tags) == 0 {
		return fault.New(fault.Invalid, "tags_missing", "tags are required")
	}
	for _, tag := range body.Tags {
		if _, err := sandbox.ParseReference(ref.Path() + ":" + tag); err != nil {
			return err
		}
	}
	for _, tag := range body.Tags {
		if err := a.UserTemplates.Remove(r.Context(), caller, ref.Path()+":"+tag, true); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
