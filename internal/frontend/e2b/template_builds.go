package e2b

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// TemplateBuilds builds templates from steps.
type TemplateBuilds interface {
	Request(ctx context.Context, caller sandbox.Principal, req templatebuild.Request) (templatebuild.Record, error)
	Link(caller sandbox.Principal, template, hash string) (present bool, token string, err error)
	Receive(token string, r io.Reader) error
	Start(ctx context.Context, caller sandbox.Principal, template, id string, spec templatebuild.Spec) error
	Status(caller sandbox.Principal, template, id string, offset, limit int) (templatebuild.Record, []templatebuild.Entry, error)
	List(caller sandbox.Principal) ([]templatebuild.Record, error)
	Drop(caller sandbox.Principal, template string) (bool, error)
}

// newTemplate is the body of a request for a build.
type newTemplate struct {
	Name          string   `json:"name"`
	Alias         string   `json:"alias"`
	Tags          []string `json:"tags"`
	CPUCount      *int64   `json:"cpuCount"`
	MemoryMB      *int64   `json:"memoryMB"`
	MinFreeDiskMB *int64   `json:"minFreeDiskMb"`
}

func (a *api) requestBuild(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body newTemplate
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if body.Name == "" {
		body.Name = body.Alias
	}
	if body.Name == "" {
		return fault.New(fault.Invalid, "template_name_missing", "name is required")
	}
	limits := &limitsBody{MemoryMB: body.MemoryMB, DiskMB: body.MinFreeDiskMB}
	if n := body.CPUCount; n != nil {
		const limit = 1 << 20 // above any machine, and far below an overflow
		if *n <= 0 || *n > limit {
			return fault.Newf(fault.Invalid, "limits_invalid", "cpuCount must be from 1 to %d", limit)
		}
		limits.CPUMillis = new(*n * 1000)
	}
	set, err := limits.limits()
	if err != nil {
		return err
	}
	// Commands of a build have the same network access as a sandbox that is created without network
	// settings.
	access, err := egress{}.access(nil)
	if err != nil {
		return err
	}
	made, err := a.Builds.Request(r.Context(), caller, templatebuild.Request{Name: body.Name, Tags: body.Tags, Limits: set, Access: access})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, map[string]any{
		"templateID": made.Template, "buildID": made.ID, "names": []string{made.Name}, "aliases": []string{made.Name}, "tags": made.Tags, "public": false,
	})
	return nil
}

// templateSpec is the body that starts a build.
type templateSpec struct {
	FromImage         string          `json:"fromImage"`
	FromTemplate      string          `json:"fromTemplate"`
	FromImageRegistry json.RawMessage `json:"fromImageRegistry"`
	StartCmd          string          `json:"startCmd"`
	ReadyCmd          string          `json:"readyCmd"`
	Force             bool            `json:"force"`
	Steps             []struct {
		Type      string   `json:"type"`
		Args      []string `json:"args"`
		FilesHash string   `json:"filesHash"`
		Force     bool     `json:"force"`
	} `json:"steps"`
}

func (a *api) startBuild(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var body templateSpec
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if isSet(body.FromImageRegistry) {
		// The server would send the credentials to a host of the caller's choice, from inside the
		// operator's network (server-side request forgery).
		return fault.New(fault.Invalid, "registry_credentials", "this server fetches no images for clients of this API, so it does not accept registry credentials").
			WithHint("on the server's machine: crannog image pull IMAGE; then name the image without credentials")
	}
	spec := templatebuild.Spec{Image: body.FromImage, Template: body.FromTemplate, Start: body.StartCmd, Ready: body.ReadyCmd, Force: body.Force}
	for _, s := range body.Steps {
		spec.Steps = append(spec.Steps, templatebuild.Step{Kind: s.Type, Args: s.Args, Files: s.FilesHash, Force: s.Force})
	}
	if err := a.Builds.Start(r.Context(), caller, r.PathValue("id"), r.PathValue("build"), spec); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// buildEntry is a line of a build's log.
type buildEntry struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
}

func buildEntriesOf(list []templatebuild.Entry) []buildEntry {
	bodies := make([]buildEntry, 0, len(list))
	for _, e := range list {
		bodies = append(bodies, buildEntry{wireTime(e.Time), e.Level, e.Message})
	}
	return bodies
}

// maxEntries bounds the lines of a log in one response. Clients request more until a response has no
// lines.
const maxEntries = 100

type buildReason struct {
	Message    string       `json:"message"`
	Step       string       `json:"step,omitempty"`
	LogEntries []buildEntry `json:"logEntries"`
}

func (a *api) buildStatus(w http.ResponseWriter, r *http.Request, caller sandbox.Principal, template, id string) error {
	query := r.URL.Query()
	offset := 0
	if s := query.Get("logsOffset"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fault.New(fault.Invalid, "offset_invalid", "logsOffset must be a number that is not negative")
		}
		offset = n
	}
	limit, err := parseLimit(query.Get("limit"), maxEntries, maxEntries)
	if err != nil {
		return err
	}
	b, entries, err := a.Builds.Status(caller, template, id, offset, limit)
	if err != nil {
		return err
	}
	body := struct {
		TemplateID string       `json:"templateID"`
		BuildID    string       `json:"buildID"`
		Status     string       `json:"status"`
		LogEntries []buildEntry `json:"logEntries"`
		Logs       []string     `json:"logs"`
		Reason     *buildReason `json:"reason,omitempty"`
	}{b.Template, b.ID, string(b.State), buildEntriesOf(entries), []string{}, nil}
	if b.State == templatebuild.Failed {
		body.Reason = &buildReason{Message: b.Error, Step: b.Step, LogEntries: []buildEntry{}}
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// uploadPath is the beginning of an upload's path. The rest of the path is the token.
const uploadPath = "/templates/uploads/"

func uploadToken(r *http.Request) (string, bool) {
	token, ok := strings.CutPrefix(r.URL.Path, uploadPath)
	return token, ok && r.Method == http.MethodPut
}

// uploadLink answers with the URL to which the client uploads the files of a COPY step. Its host is
// that of the client's request.
func (a *api) uploadLink(w http.ResponseWriter, r *http.Request, caller sandbox.Principal, template, hash string) error {
	present, token, err := a.Builds.Link(caller, template, hash)
	if err != nil {
		return err
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	writeJSON(w, http.StatusCreated, map[string]any{"present": present, "url": scheme + "://" + r.Host + uploadPath + token})
	return nil
}

// maxUploadIdle is how long the client of an upload may pause.
const maxUploadIdle = time.Minute

// receive receives an upload. It has no time limit as long as data keeps arriving.
func (a *api) receive(w http.ResponseWriter, r *http.Request, token string) error {
	if err := a.Builds.Receive(token, &idleDeadlineBody{r.Body, http.NewResponseController(w)}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// idleDeadlineBody is a body whose time limit is extended by each read.
type idleDeadlineBody struct {
	io.Reader
	rc *http.ResponseController
}

// Read implements io.Reader.
func (b *idleDeadlineBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(maxUploadIdle)) // without a connection there is no limit
	return b.Reader.Read(p)
}
