package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/policy"
)

// put asks a person and returns the answer's ID if it is yes. Everything else
// is a refusal, an error too.
func (b *Box) put(ctx context.Context, g *generation, d causeway.Decision, host string, port int, q causeway.Question) (string, *refusal) {
	quorum, timeout := g.policy.Approval(host, port)
	q.Sandbox, q.Rule, q.Policy, q.Quorum = b.sandbox, d.Rule, g.policy.Digest(), quorum
	q.Expiry = int64(timeout / time.Second)
	q.Summary = g.clean(q.Summary)
	for k, v := range q.Facts {
		q.Facts[k] = g.text.String(v)
	}
	ctx, cancel := context.WithTimeout(ctx, b.limits.Hold)
	defer cancel()
	a, err := b.asker.Ask(ctx, q)
	if err != nil {
		r := floor(http.StatusServiceUnavailable, "approvals_unavailable", d.Rule, "nobody can be asked now")
		r.cause = err
		return "", r
	}
	if a.Granted {
		return a.Approval, nil
	}
	d.Effect = causeway.Deny
	switch a.State {
	case "denied":
		d.Reason = "a person said no"
		if a.Reason != "" {
			d.Reason += ": " + printable(a.Reason, 256)
		}
	case "expired":
		d.Reason = "nobody answered in time"
	default:
		a.State = "pending"
		d.Reason = "a person must approve this"
	}
	return "", &refusal{status: http.StatusForbidden, code: "approval_" + a.State, decision: d, answer: &a}
}

// ask asks about a whole connection, where the policy wants that. A grant is
// for this one.
func (f *flow) ask(g *generation, conn policy.Connection) *refusal {
	d, asks := g.asksHost(conn, f.host, f.port, f.tls)
	if !asks {
		return nil
	}
	id, stop := f.box.put(f.ctx, g, d, f.host, f.port, hostQuestion(f.host, f.port))
	if stop != nil {
		return stop
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granted, f.approved = d.Rule, id
	return nil
}

// asksHost says whether a person is to be asked about a host as a whole. So
// it is where each of its requests would be asked about because nobody has
// listed it: one question says that better than many.
func (g *generation) asksHost(conn policy.Connection, host string, port int, tls bool) (causeway.Decision, bool) {
	if conn.Effect == causeway.Ask {
		return conn.Decision, true
	}
	if !conn.Inspect {
		return causeway.Decision{}, false
	}
	d, _ := g.policy.Request(policy.Request{Host: host, Port: port, Method: http.MethodGet, Path: "/", TLS: tls})
	return d, d.Effect == causeway.Ask && d.Rule == policy.RuleUnlisted
}

func (f *flow) approval() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.approved
}

func hostQuestion(host string, port int) causeway.Question {
	return causeway.Question{
		Kind:    causeway.AskHost,
		Summary: "connect to " + host + ":" + strconv.Itoa(port),
		Facts:   map[string]string{"host": host, "port": strconv.Itoa(port)},
	}
}

// telling are the headers that change what a request does. A grant is bound
// to them; others, such as a trace's number, may differ in the next try.
var telling = []string{
	"Accept", "Authorization", "Content-Type", "Content-Encoding", "Content-Range", "If-Match", "If-None-Match", "Git-Protocol",
	"Destination", "Depth", "Overwrite", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override",
}

// facts are all that an answer about this request is bound to.
func (x *exchange) facts() map[string]string {
	facts := map[string]string{
		"method": x.method, "host": x.host, "port": strconv.Itoa(x.port), "path": x.path, "tls": strconv.FormatBool(x.tls),
		"query_sha256": hexHash(x.r.URL.RawQuery),
	}
	if x.upgrade {
		facts["websocket"] = "true"
	}
	for _, name := range telling {
		if x.push != nil {
			break // its refs say all, and git may compress it or not
		}
		if v := x.r.Header.Values(name); len(v) > 0 {
			// Hashed, since some hold a credential.
			facts["header_"+strings.ToLower(name)+"_sha256"] = hexHash(strings.Join(v, "\n"))
		}
	}
	if x.body != nil {
		facts["body_sha256"] = x.body.digest()
		facts["body_bytes"] = strconv.FormatInt(x.body.size, 10)
	}
	for _, s := range x.secrets {
		// A grant ends with the value that it was given for.
		facts["secret_"+s.Name] = "generation " + strconv.FormatInt(s.Generation, 10)
	}
	return facts
}

func hexHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// approve asks a person about a request that needs it. After it, the policy
// may be another one.
func (x *exchange) approve() *refusal {
	var named []string
	for _, s := range x.secrets {
		if s.Approve {
			named = append(named, s.Name)
		}
	}
	if x.decision.Effect != causeway.Ask && len(named) == 0 {
		return nil
	}
	q := causeway.Question{Kind: x.kind, Summary: x.summary}
	d := x.decision
	if d.Effect != causeway.Ask {
		q.Kind = causeway.AskSecret
		d.Rule, d.Layer = "secret:"+named[0], "task"
	}
	if q.Summary == "" {
		q.Summary = x.method + " " + x.target()
	}
	if len(named) > 0 {
		q.Summary += " with the secret " + strings.Join(named, ", ")
	}
	if x.push == nil {
		if err := x.hold(); err != nil {
			return x.unheld(err)
		}
	}
	q.Facts = x.facts()
	maps.Copy(q.Facts, x.extra)
	id, stop := x.box.put(x.ctx, x.gen, d, x.host, x.port, q)
	if stop != nil {
		return stop
	}
	x.record.Approval = id
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	x.granted = d.Rule
	return nil
}
