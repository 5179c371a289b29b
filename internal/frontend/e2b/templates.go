package e2b

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/sandbox"
)

// UserTemplates manages the templates that callers have created.
type UserTemplates interface {
	List(caller sandbox.Principal) ([]catalog.Template, error)
	Inspect(caller sandbox.Principal, name string) (catalog.Template, error)
	Tag(ctx context.Context, caller sandbox.Principal, name string, tags []string) (catalog.Template, error)
	Remove(ctx context.Context, caller sandbox.Principal, name string, tagged bool) error
}

func (a *api) templateRoutes() {
	a.handle("GET /templates/{rest...}", a.getTemplate)
	if a.UserTemplates == nil || a.Builds == nil {
		a.handle("GET /templates", a.unknownRoute) // without this route, the router would redirect
		return
	}
	a.handle("GET /templates", a.listTemplates(false))
	a.handle("GET /v2/templates", a.listTemplates(true))
	a.handle("PATCH /templates/{id}", a.publishTemplate(false))
	a.handle("PATCH /v2/templates/{id}", a.publishTemplate(true))
	a.handle("POST /templates/tags", a.assignTags)
	a.handle("DELETE /templates/tags", a.removeTags)
	a.handle("POST /v3/templates", a.requestBuild)
	a.handle("POST /v2/templates/{id}/builds/{build}", a.startBuild)
}

// getTemplate chooses the call by the path. The router cannot do so, because a name may contain a
// slash, escaped or not.
func (a *api) getTemplate(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/templates/"), "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err != nil {
			return fault.New(fault.Invalid, "path_invalid", "the path cannot be read")
		}
		parts[i] = plain
	}
	if parts[0] == "aliases" && len(parts) > 1 {
		r.SetPathValue("ref", strings.Join(parts[1:], "/"))
		return a.templateAlias(w, r, caller)
	}
	if a.UserTemplates == nil || a.Builds == nil {
		return a.unknownRoute(w, r, caller)
	}
	switch {
	case len(parts) == 1 && parts[0] != "":
		return a.templateWithBuilds(w, r, caller, parts[0])
	case len(parts) == 2 && parts[1] == "tags":
		return a.listTags(w, caller, parts[0])
	case len(parts) == 3 && parts[1] == "files":
		return a.uploadLink(w, r, caller, parts[0], parts[2])
	case len(parts) == 4 && parts[1] == "builds" && parts[3] == "status":
		return a.buildStatus(w, r, caller, parts[0], parts[2])
	case len(parts) == 4 && parts[1] == "builds" && parts[3] == "logs":
		return a.buildLogs(w, r, caller, parts[0], parts[2])
	}
	return a.unknownRoute(w, r, caller)
}

// templateBody is a template in a list. The server does not count how often a template is used.
type templateBody struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	BuildStatus   string     `json:"buildStatus"`
	BuildCount    int        `json:"buildCount"`
	CPUCount      int64      `json:"cpuCount"`
	MemoryMB      int64      `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Names         []string   `json:"names"`
	Aliases       []string   `json:"aliases"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	EnvdVersion   string     `json:"envdVersion"`
}

func templateBodyOf(t catalog.Template) templateBody {
	b := templateBody{
		TemplateID: t.ID, BuildStatus: "building", BuildCount: t.Last, Public: t.Owner == "", Names: namesOf(t), Aliases: namesOf(t),
		CreatedAt: wireTime(t.Created), UpdatedAt: wireTime(t.Created), EnvdVersion: envdVersion,
	}
	v, ready := t.Newest()
	if ready {
		b.BuildID, b.BuildStatus, b.UpdatedAt = t.BuildOf(v), "ready", wireTime(v.Created)
	}
	limits := v.Limits.Limits.OrDefault()
	b.CPUCount, b.MemoryMB, b.DiskSizeMB = wholeCPUs(v.Limits.Limits), limits.MemoryBytes>>20, limits.DiskBytes>>20
	return b
}

func namesOf(t catalog.Template) []string { return append([]string{t.Name}, t.Aliases...) }

// listTemplates answers with the templates that callers have created, newest first: all of them, or
// one page.
func (a *api) listTemplates(paged bool) call {
	return func(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
		all, err := a.UserTemplates.List(caller)
		if err != nil {
			return err
		}
		slices.SortFunc(all, func(x, y catalog.Template) int {
			return newestFirst(x.Created, x.ID, y.Created, y.ID)
		})
		if paged {
			all, err = pageOf(w, r, all, func(t catalog.Template) (time.Time, string) { return t.Created, t.ID })
			if err != nil {
				return err
			}
		}
		bodies := make([]templateBody, 0, len(all))
		for _, t := range all {
			bodies = append(bodies, templateBodyOf(t))
		}
		writeJSON(w, http.StatusOK, bodies)
		return nil
	}
}

func newestFirst(x time.Time, xID string, y time.Time, yID string) int {
	if c := y.Compare(x); c != 0 {
		return c
	}
	return strings.Compare(xID, yID)
}

// pageOf returns a page of a list that is sorted by newestFirst, and sets the token of the next
// page.
func pageOf[T any](w http.ResponseWriter, r *http.Request, all []T, key func(T) (time.Time, string)) ([]T, error) {
	query := r.URL.Query()
	limit, err := parseLimit(query.Get("limit"), maxPage, maxPage)
	if err != nil {
		return nil, err
	}
	if s := query.Get("nextToken"); s != "" {
		after, err := parsePageToken(s, false)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(one T) bool {
			at, id := key(one)
			return newestFirst(at, id, after.after, after.id) <= 0
		})
	}
	if len(all) > limit {
		all = all[:limit]
		at, id := key(all[limit-1])
		w.Header().Set("X-Next-Token", pageToken{after: at, id: id}.String())
	}
	return all, nil
}

// publishTemplate answers the call that publishes a template. Only templates of the server's own
// user are public, so a request that would change this is an error.
func (a *api) publishTemplate(named bool) call {
	return func(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
		var body struct {
			Public *bool `json:"public"`
		}
		if err := decode(w, r, &body, false); err != nil {
			return err
		}
		t, err := a.UserTemplates.Inspect(caller, r.PathValue("id"))
		if err != nil {
			return err
		}
		if body.Public != nil && *body.Public != (t.Owner == "") {
			return fault.New(fault.Denied, "template_owner", "a template of a key is for that key, and one that was made on the server's machine is for all keys").
				WithHint("make it there: crannog template create")
		}
		if !named {
			w.WriteHeader(http.StatusOK)
			return nil
		}
		writeJSON(w, http.StatusOK, map[string][]string{"names": namesOf(t)})
		return nil
	}
}

// removeTemplate removes a template that a caller has created, or one tag of it. Templates of the
// host and images cannot be removed by this API.
func (a *api) removeTemplate(ctx context.Context, caller sandbox.Principal, ref sandbox.Reference) error {
	if a.UserTemplates != nil {
		made, inspectErr := a.UserTemplates.Inspect(caller, ref.Path())
		if err := a.UserTemplates.Remove(ctx, caller, ref.String(), ref.Tag != sandbox.DefaultTag); fault.KindOf(err) != fault.NotFound {
			if err == nil && inspectErr == nil && ref.Tag == sandbox.DefaultTag && a.Builds != nil {
				_, err = a.Builds.Drop(caller, made.ID)
			}
			return err
		}
	}
	if t, err := a.Templates.Resolve(ctx, ref); err == nil && caller.MayStart(t) {
		return fault.Newf(fault.Denied, "template_of_server", "%s is a template of the server or an image, which clients of this API do not remove", ref.Path())
	}
	return sandbox.TemplateUnknown(ref)
}

// templateAlias reports whether a template, or a snapshot of the caller, has this name.
func (a *api) templateAlias(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	found, ref, err := a.findSnapshot(r, caller)
	body := struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{TemplateID: found.ID}
	if fault.KindOf(err) == fault.NotFound {
		var t sandbox.Template
		if t, err = a.Templates.Resolve(r.Context(), ref); err == nil && !caller.MayStart(t) {
			err = sandbox.TemplateUnknown(ref)
		}
		body.TemplateID, body.Public = t.ID, t.Owner == ""
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}
