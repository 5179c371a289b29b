package v1

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
)

// builder has one build, b1, and records the requests.
type builder struct {
	request build.Request
	context string
	offset  int64
	ended   bool
	outcome error
}

func (b *builder) Create(_ context.Context, caller sandbox.Principal, req build.Request) (build.Record, []dockerfile.Warning, error) {
	b.request = req
	if len(req.Dockerfile) == 0 {
		return build.Record{}, nil, fault.New(fault.Invalid, "dockerfile_empty", "the Dockerfile is empty")
	}
	return build.Record{ID: "b1", Owner: caller.KeyID, Tag: req.Tag, State: build.Waiting, Created: time.Unix(7, 0).UTC()},
		[]dockerfile.Warning{{Line: 3, Rule: "MaintainerDeprecated", Text: "use LABEL"}}, nil
}

func (b *builder) Upload(_ context.Context, _ sandbox.Principal, id string, offset int64, data []byte) error {
	if id != "b1" {
		return unknownBuild(id)
	}
	b.context, b.offset = b.context+string(data), offset
	return nil
}

func (b *builder) Run(_ context.Context, _ sandbox.Principal, _ string, report func(solve.Event)) (library.Image, error) {
	report(solve.Event{Kind: solve.Started, Step: 1, Title: "FROM debian"})
	report(solve.Event{Kind: solve.Done, Step: 1, Took: 1500 * time.Millisecond})
	return debian(), b.outcome
}

func (b *builder) Cancel(_ context.Context, _ sandbox.Principal, id string) error {
	b.ended = id == "b1"
	return nil
}

func (b *builder) List(caller sandbox.Principal) ([]build.Record, error) {
	return []build.Record{{ID: "b2", State: build.Failed, Error: "no room", Code: "disk_full", Ended: time.Unix(9, 0).UTC()}, {ID: "b1", Owner: caller.KeyID}}, b.outcome
}

func (b *builder) Get(_ sandbox.Principal, id string) (build.Record, error) {
	if id != "b1" {
		return build.Record{}, unknownBuild(id)
	}
	return build.Record{ID: id, State: build.Running}, nil
}

func unknownBuild(id string) error {
	return fault.Newf(fault.NotFound, "build_not_found", "there is no build %s", id)
}

func newBuilds(t *testing.T) (*rig, *builder) {
	t.Helper()
	r, b := newRig(t), &builder{}
	r.deps.Builds = b
	return r.with(r.deps), b
}

func TestCreateBuild(t *testing.T) {
	r, b := newBuilds(t)
	var made api.Build
	code, p := r.call("POST", "/v1/builds", `{"tag":"t","dockerfile":"FROM x","target":"s","args":{"A":"1"},"secrets":{"k":"dg=="},"no_cache":true,
		"source_date_epoch":12,"access":{"net":"none"},"limits":{"memory_bytes":1073741824}}`, &made)
	if code != 201 || made.ID != "b1" || made.State != "waiting" || made.EndedAt != nil || len(made.Warnings) != 1 || made.Warnings[0] != (api.BuildWarning{Line: 3, Rule: "MaintainerDeprecated", Text: "use LABEL"}) {
		t.Fatalf("POST /v1/builds: got %d %+v %+v", code, made, p)
	}
	q := b.request
	if q.Target != "s" || q.Args["A"] != "1" || string(q.Secrets["k"]) != "v" || !q.NoCache || q.Push || !q.Epoch.Equal(time.Unix(12, 0)) || q.Access.Net != sandbox.NetNone || q.Limits.MemoryBytes != 1<<30 {
		t.Errorf("request to the builder: got %+v", q)
	}
	if code, _ := r.call("POST", "/v1/builds", `{"tag":"t","dockerfile":"FROM x"}`, &made); code != 201 || b.request.Access.Net != sandbox.NetDev || !b.request.Epoch.IsZero() {
		t.Errorf("the defaults: %d %+v", code, b.request)
	}
	for body, want := range map[string]string{
		`{"tag":"t","dockerfile":""}`: "dockerfile_empty", `{"tag":"t","dockerfile":"x","access":{"net":"everything"}}`: "", `{"dockerfile":"x","source_date_epoch":-1,"tag":""}`: "",
	} {
		if code, p := r.call("POST", "/v1/builds", body, nil); code < 400 || code >= 500 || want != "" && p.Code != want {
			t.Errorf("%s: %d %+v", body, code, p)
		}
	}
}

func TestListAndCancelBuilds(t *testing.T) {
	r, b := newBuilds(t)
	var list api.BuildList
	if code, _ := r.call("GET", "/v1/builds", "", &list); code != 200 || len(list.Builds) != 2 || list.Builds[0].Error != "no room" || list.Builds[0].Code != "disk_full" || list.Builds[0].EndedAt == nil {
		t.Errorf("GET /v1/builds: got %d %+v", code, list)
	}
	var one api.Build
	if code, _ := r.call("GET", "/v1/builds/b1", "", &one); code != 200 || one.State != "running" {
		t.Errorf("GET /v1/builds/b1: got %d %+v", code, one)
	}
	if code, _ := r.call("PUT", "/v1/builds/b1/context", `{"offset":5,"data":"dGFy"}`, nil); code != 204 || b.context != "tar" || b.offset != 5 {
		t.Errorf("%d %q at %d", code, b.context, b.offset)
	}
	if code, _ := r.call("DELETE", "/v1/builds/b1", "", nil); code != 204 || !b.ended {
		t.Errorf("cancel: %d", code)
	}
	for _, c := range [][3]string{{"GET", "/v1/builds/b9", ""}, {"PUT", "/v1/builds/b9/context", `{"offset":0,"data":"dGFy"}`}, {"POST", "/v1/builds/b9/run", ""}} {
		if code, p := r.call(c[0], c[1], c[2], nil); code != 404 || p.Code != "build_not_found" {
			t.Errorf("%v: %d %+v", c, code, p)
		}
	}
	b.outcome = errors.New("the disk fails")
	if code, p := r.call("GET", "/v1/builds", "", nil); code != 500 || strings.Contains(p.Detail, "disk") {
		t.Errorf("GET /v1/builds: got %d %+v", code, p)
	}
}

// A build's events are sent as lines. The last one has the image or the reason for its absence.
func TestRunBuild(t *testing.T) {
	for name, c := range map[string]struct {
		outcome error
		code    string
	}{
		"built":       {nil, ""},
		"failed":      {fault.New(fault.Invalid, "build_step_failed", "RUN failed"), "build_step_failed"},
		"our failure": {errors.New("secret detail"), "internal"},
	} {
		r, b := newBuilds(t)
		b.outcome = c.outcome
		w := r.raw("POST", "/v1/builds/b1/run", "")
		lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
		if w.Code != 200 || len(lines) != 3 || lines[0] != `{"kind":"started","step":1,"title":"FROM debian"}` || lines[1] != `{"kind":"done","step":1,"took_ms":1500}` {
			t.Fatalf("%s: %d %s", name, w.Code, w.Body)
		}
		var last api.BuildEvent
		if err := json.Unmarshal([]byte(lines[2]), &last); err != nil || !last.Finished || strings.Contains(lines[2], "secret detail") {
			t.Errorf("%s: %v %s", name, err, lines[2])
		}
		if (last.Image != nil) != (c.outcome == nil) || (last.Problem != nil) != (c.outcome != nil) || last.Problem != nil && last.Problem.Code != c.code {
			t.Errorf("%s: %s", name, lines[2])
		}
	}
}
