package v1

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/sandbox"
)

// Advisories lists, fills and removes the advisory databases of the package gate.
type Advisories interface {
	List() ([]advisory.Listed, error)
	ImportFrom(ctx context.Context, content io.Reader) (advisory.Imported, error)
	Remove(e packages.Ecosystem) error
}

// advisoriesPath is the path of the databases, below the prefix of the API.
const advisoriesPath = "/package-cache/advisories"

// advisoryHandlers serves the advisory databases, to local callers only: they decide what sandboxes
// of all users can install.
type advisoryHandlers struct{ advisories Advisories }

func (h *advisoryHandlers) register(r *registry) {
	if h.advisories == nil {
		return
	}
	register(r, op("advisories-list", "GET", advisoriesPath, "List the advisory databases"), h.list)
	put := op("advisories-import", "PUT", advisoriesPath, "Add advisories in OSV's format: a zip of JSON files, or one JSON file")
	put.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
	}}
	register(r, put, h.add)
	register(r, empty(op("advisories-remove", "DELETE", advisoriesPath+"/{ecosystem}", "Remove the advisory database of an ecosystem")), h.remove)
}

type advisoriesOutput struct{ Body api.AdvisoryList }

func (h *advisoryHandlers) list(_ context.Context, caller sandbox.Principal, _ *struct{}) (*advisoriesOutput, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	all, err := h.advisories.List()
	if err != nil {
		return nil, err
	}
	out := &advisoriesOutput{api.AdvisoryList{Databases: make([]api.AdvisoryDatabase, 0, len(all))}}
	for _, d := range all {
		out.Body.Databases = append(out.Body.Databases, toAdvisoryDatabase(d))
	}
	return out, nil
}

// advisoryUpload is a request whose body is read while it arrives.
type advisoryUpload struct {
	body *slowBody
}

// Resolve implements huma.Resolver.
func (u *advisoryUpload) Resolve(c huma.Context) []error {
	u.body = &slowBody{c.BodyReader(), c}
	return nil
}

type importedAdvisoriesOutput struct{ Body api.ImportedAdvisories }

func (h *advisoryHandlers) add(ctx context.Context, caller sandbox.Principal, in *advisoryUpload) (*importedAdvisoriesOutput, error) {
	// Before the body is read, which may be large.
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	done, err := h.advisories.ImportFrom(ctx, wholeBody{in.body})
	if err != nil {
		return nil, err
	}
	out := &importedAdvisoriesOutput{api.ImportedAdvisories{
		Advisories: done.Advisories, Withdrawn: done.Withdrawn, Skipped: done.Skipped, Databases: make([]api.AdvisoryDatabase, 0, len(done.Databases)),
	}}
	for _, d := range done.Databases {
		out.Body.Databases = append(out.Body.Databases, toAdvisoryDatabase(advisory.Listed{Info: d}))
	}
	return out, nil
}

// wholeBody is a body after which the work takes longer than the client may pause.
type wholeBody struct{ *slowBody }

// Read implements io.Reader. At the end it removes the time limit, because the connection would
// otherwise count as broken while the advisories are stored.
func (b wholeBody) Read(p []byte) (int, error) {
	n, err := b.slowBody.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.c.SetReadDeadline(time.Time{}) // without a connection there is no limit
		return n, io.EOF
	}
	if err != nil {
		err = fault.Wrap(err, fault.Invalid, "body_unreadable", "the body cannot be read")
	}
	return n, err
}

// advisoryRef is an ecosystem in the path.
type advisoryRef struct {
	Ecosystem string `path:"ecosystem" maxLength:"32" doc:"As in packages.cache of a policy."`
}

func (h *advisoryHandlers) remove(_ context.Context, caller sandbox.Principal, in *advisoryRef) (*struct{}, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	return nil, h.advisories.Remove(packages.Ecosystem(in.Ecosystem))
}

func toAdvisoryDatabase(d advisory.Listed) api.AdvisoryDatabase {
	out := api.AdvisoryDatabase{Ecosystem: string(d.Ecosystem), Releases: d.Releases, Advisories: d.Advisories, Packages: d.Packages, Damaged: d.Damaged}
	if !d.Imported.IsZero() {
		out.ImportedAt = &d.Imported
		out.Stale = d.Stale(advisory.StaleAfter, time.Now())
	}
	if !d.Modified.IsZero() {
		out.ModifiedAt = &d.Modified
	}
	return out
}

// importsAdvisories reports whether a request uploads advisories.
func importsAdvisories(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Path == api.Prefix+advisoriesPath
}
