package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/frontend/entrydata"
	"github.com/crannog/crannog/internal/sandbox"
)

// Policies returns the policies of sandboxes; sandbox.Service implements it.
type Policies interface {
	Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
	Policy(ctx context.Context, caller sandbox.Principal, ref string) (*policy.Policy, error)
}

// History is the audit log; audit.Log implements it.
type History interface {
	Read(ctx context.Context, f audit.Filter, follow bool, yield func(audit.Entry) error) error
}

// maxDocument bounds the editor's request: a policy has at most 1 MiB, and JSON encodes some
// characters with six.
const maxDocument = 2 << 20

func (c *Console) policyRoutes() {
	c.handle("GET /policy/schema", session.Viewer, handlerFunc(c.policySchema))
	c.handle("GET /policy/presets", session.Viewer, handlerFunc(c.policyPresets))
	c.handle("POST /policy/lint", session.Viewer, handlerFunc(c.policyLint))
	c.handle("POST /policy/explain", session.Viewer, handlerFunc(c.policyExplain))
	c.handle("GET /sandboxes/{id}/policy/versions", session.Viewer, handlerFunc(c.policyVersions))
}

func (c *Console) policySchema(w http.ResponseWriter, _ *http.Request, _ session.Session) {
	writeJSON(w, http.StatusOK, json.RawMessage(policy.Schema()))
}

type preset struct {
	Name     string `json:"name"`
	Document string `json:"document"`
}

// policyPresets returns the built-in levels, and descriptions of the values of --net.
func (c *Console) policyPresets(w http.ResponseWriter, r *http.Request, _ session.Session) {
	list := []preset{}
	for _, name := range policy.Levels() {
		text, err := policy.LevelText(name)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		list = append(list, preset{"level/" + name, string(text)})
	}
	for _, d := range []policy.Document{policy.None(), policy.Dev(), policy.Open()} {
		text, err := d.YAML()
		if err != nil {
			c.fail(w, r, err)
			return
		}
		list = append(list, preset{d.Name, text})
	}
	writeJSON(w, http.StatusOK, list)
}

// layers returns the policies above a sandbox's own.
func (c *Console) layers() (list []policy.Layer) {
	if d := c.o.Rules.Organisation; d != nil {
		list = append(list, policy.Layer{Kind: policy.LayerOrganisation, Document: *d})
	}
	if d := c.o.Rules.Project; d != nil {
		list = append(list, policy.Layer{Kind: policy.LayerProject, Document: *d})
	}
	return list
}

type problem struct {
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Path     string `json:"path"`
	Text     string `json:"text"`
	Severity string `json:"severity"` // error or warning
}

// policyLint returns the problems of a document. The document is not stored.
func (c *Console) policyLint(w http.ResponseWriter, r *http.Request, _ session.Session) {
	var in struct {
		Document string `json:"document"`
	}
	if err := readJSON(w, r, maxDocument, &in); err != nil {
		c.fail(w, r, err)
		return
	}
	out := struct {
		OK       bool      `json:"ok"`
		Problems []problem `json:"problems"`
	}{true, []problem{}}
	lines := strings.Split(in.Document, "\n")
	for _, p := range policy.Check([]byte(in.Document), policy.LayerTask, c.layers()...) {
		one := problem{Line: p.Line, Column: 1, Path: p.Field, Text: p.Text, Severity: "error"}
		if p.Warning {
			one.Severity = "warning"
		} else {
			out.OK = false
		}
		if p.Line > 0 && p.Line <= len(lines) {
			text := lines[p.Line-1]
			one.Column = 1 + len(text) - len(strings.TrimLeft(text, " \t"))
		}
		out.Problems = append(out.Problems, one)
	}
	writeJSON(w, http.StatusOK, out)
}

type explanation struct {
	Effect string        `json:"effect"`
	Rule   string        `json:"rule"`
	Layer  string        `json:"layer"`
	Reason string        `json:"reason"`
	Fix    string        `json:"fix"`
	Steps  []policy.Step `json:"steps"`
}

// policyExplain returns the decision of a policy about a request. Nothing is sent.
func (c *Console) policyExplain(w http.ResponseWriter, r *http.Request, caller session.Session) {
	var in struct {
		Document *string `json:"document"`
		Sandbox  string  `json:"sandbox"`
		Method   string  `json:"method"`
		URL      string  `json:"url"`
	}
	if err := readJSON(w, r, maxDocument, &in); err != nil {
		c.fail(w, r, err)
		return
	}
	p, err := c.policyOf(r.Context(), caller, in.Document, in.Sandbox)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	request, err := policy.ParseTarget(in.Method, in.URL)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	d, steps := p.Foresee(request)
	writeJSON(w, http.StatusOK, explanation{string(d.Effect), d.Rule, d.Layer, d.Reason, d.Fix, append([]policy.Step{}, steps...)})
}

// policyOf returns the policy of a sandbox, or the policy that results from a document.
func (c *Console) policyOf(ctx context.Context, caller session.Session, document *string, ref string) (*policy.Policy, error) {
	if (document == nil) == (ref == "") {
		return nil, fault.New(fault.Invalid, "policy_missing", "name a document or a sandbox, but not both")
	}
	if document == nil {
		return c.o.Policies.Policy(ctx, caller.Principal(), ref)
	}
	d, err := policy.Parse([]byte(*document))
	if err != nil {
		return nil, err
	}
	p, _, err := sandbox.Access{Net: sandbox.NetPolicy, Documents: []policy.Document{d}}.Compile(c.o.Rules)
	return p, err
}

type version struct {
	Digest   string    `json:"digest"`
	Seq      int64     `json:"seq"`
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Document string    `json:"document,omitempty"` // absent if the audit log does not have it any more, or it was too large
}

// policyVersions returns the present and earlier policies of a sandbox, newest first.
func (c *Console) policyVersions(w http.ResponseWriter, r *http.Request, caller session.Session) {
	sb, err := c.o.Policies.Get(r.Context(), caller.Principal(), r.PathValue("id"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	list := []version{}
	if c.o.History != nil {
		f := audit.Filter{Sandbox: sb.ID, Kinds: []audit.Kind{audit.SandboxStarted, audit.PolicyChanged}}
		err = c.o.History.Read(r.Context(), f, false, func(e audit.Entry) error {
			digest, before, err := policyIn(e)
			if err != nil {
				return err
			}
			if n := len(list); n > 0 && before.digest == list[n-1].Digest {
				list[n-1].Document = before.document
			}
			if len(list) == 0 || list[len(list)-1].Digest != digest {
				list = append(list, version{Digest: digest, Seq: e.Seq, At: e.Time, Actor: e.Actor})
			}
			return nil
		})
		if err != nil {
			c.fail(w, r, err)
			return
		}
	}
	if n := len(list); n > 0 && list[n-1].Digest == sb.PolicyDigest {
		p, err := c.o.Policies.Policy(r.Context(), caller.Principal(), sb.ID)
		if err == nil {
			list[n-1].Document, err = p.Document().YAML()
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
	}
	slices.Reverse(list)
	writeJSON(w, http.StatusOK, list)
}

// replaced is a policy that is no longer in force.
type replaced struct{ digest, document string }

// policyIn returns the policy that an entry puts in force, and the one that it replaces.
func policyIn(e audit.Entry) (string, replaced, error) {
	switch d := entrydata.Of(e.Kind, e.Data).(type) {
	case payload.Started:
		return d.Policy, replaced{}, nil
	case payload.Policy:
		return d.New, replaced{d.Old, d.OldDocument}, nil
	}
	return "", replaced{}, fmt.Errorf("entry %d of the audit log, %s, has data of another form", e.Seq, e.Kind)
}
