package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// push is a git push whose head has been read.
type push struct {
	*git.Request
	repo    string
	reasons []string // one for each command
	// bound is set if the commands determine the whole body: every part of it is a push, to a
	// server that accepts pushes there. Another request that may be interpreted as a push is also
	// checked by its refs, but stays an ordinary request: an approval covers its whole body, and a
	// refusal is not in git's format.
	bound bool
}

// decidePush reads a push up to its pack and returns the policy's decision about its refs.
func (x *exchange) decidePush(d egress.Decision, repo string) (egress.Decision, *refusal) {
	if d.Effect == egress.Deny {
		return d, nil
	}
	if x.action.push == nil {
		read, err := git.Parse(x.limitPauses(x.r.Body), strings.Join(x.r.Header.Values("Content-Encoding"), ","))
		x.action.push = &push{Request: read, repo: repo, bound: x.action.git.op == git.Push}
		if err != nil {
			x.action.push.Body = x.r.Body
			r := &refusal{status: http.StatusForbidden, code: fault.CodeOf(err), cause: err,
				decision: denied(policy.RulePush, fault.PublicText(err))}
			r.decision.Fix = fault.HintOf(err)
			x.record.Kind = egress.KindGit
			return d, r
		}
		x.action.push.bound = x.action.push.bound && read.Whole
	}
	p := x.action.push
	p.reasons = nil
	if p.Probe() && !p.bound {
		return d, nil // the request changes no ref, so only its other properties count
	}
	x.record.Kind = egress.KindGit
	if x.question.kind == egress.AskRequest {
		x.question.kind = egress.AskPush
	}
	extra := map[string]string{"repo": repo}
	var lines []string
	for i, c := range p.Commands {
		refDecision := x.evaluateRef(c)
		reason := ""
		if refDecision.Effect != egress.Allow {
			reason = refDecision.Rule
		}
		p.reasons = append(p.reasons, reason)
		if refDecision.Effect.Stricter(d.Effect) {
			d = refDecision
		}
		lines = append(lines, verb(c)+" "+c.Ref)
		extra["ref_"+strconv.Itoa(i)] = c.Ref + " " + c.Old + " " + c.New
	}
	for i, o := range p.Options {
		extra["option_"+strconv.Itoa(i)] = o
		if d.Effect == egress.Allow {
			// Some servers execute push options, for example to merge.
			d.Effect, d.Rule, d.Reason = egress.Ask, policy.RulePush+".options", "a push option may be an order to the server"
		}
	}
	if len(lines) == 0 {
		lines = []string{"nothing yet"}
	}
	x.addFacts("push to "+x.dest.host+"/"+repo+": "+strings.Join(lines, ", "), extra)
	return d, nil
}

// addFacts adds a summary and facts to the approval request.
func (x *exchange) addFacts(summary string, extra map[string]string) {
	if x.question.summary != "" {
		summary = x.question.summary + "; " + summary
	}
	x.question.summary = summary
	if x.question.extra == nil {
		x.question.extra = map[string]string{}
	}
	maps.Copy(x.question.extra, extra)
}

func verb(c git.Command) string {
	switch {
	case c.Deletes():
		return "delete"
	case c.Creates():
		return "create"
	default:
		return "move"
	}
}

// evaluateRef returns the policy's decision about one ref.
func (x *exchange) evaluateRef(c git.Command) egress.Decision {
	r := policy.PushRequest{Host: x.dest.host, Repo: x.action.push.repo, Ref: c.Ref, Delete: c.Deletes()}
	d := x.gen.policy.Push(r)
	tag := strings.HasPrefix(c.Ref, "refs/tags/")
	if tag && d.Effect == egress.Allow && !x.listed(c.Ref, func(glob string) bool { return strings.HasPrefix(glob, "refs/tags/") }) {
		// "refs/**" is meant for branches, but others make releases from tags.
		d.Effect, d.Rule, d.Reason = egress.Ask, policy.RulePush+".tags", "a tag that no rule lists as one"
	}
	// Branches under a pattern belong to the sandbox, including the commits that it drops there.
	if !c.MayForce() || x.listed(c.Ref, func(glob string) bool { return !tag && strings.Contains(glob, "*") }) {
		return d
	}
	r.Force = true
	forced := x.gen.policy.Push(r)
	if forced.Effect == egress.Deny && d.Effect != egress.Deny {
		// The protocol does not show whether a push is forced, but a person can tell, so each one
		// needs an approval.
		forced.Effect = egress.Ask
		forced.Reason = "this moves an existing ref, and may drop commits of it"
	}
	if forced.Effect.Stricter(d.Effect) {
		return forced
	}
	return d
}

// listed reports whether a matching push glob of the repository matches the ref.
func (x *exchange) listed(ref string, fit func(glob string) bool) bool {
	for _, m := range x.gen.policy.Document().Git.Remotes {
		if m.Host == x.dest.host && policy.Match(m.Repo, x.action.push.repo) &&
			slices.ContainsFunc(m.Push, func(g string) bool { return fit(g) && policy.Match(g, ref) }) {
			return true
		}
	}
	return false
}

// refusePush answers in git's format. After a refusal in another format, git would print that the
// remote hung up, and that everything is up to date.
func (x *exchange) refusePush(r *refusal) {
	x.record.Decision, x.record.Status = r.decision, http.StatusOK
	if r.answer != nil {
		x.record.Approval = r.answer.Approval
	}
	if r.cause != nil {
		x.record.Error = r.cause.Error()
	}
	note := x.gen.text.String(r.line("git push", "https://"+x.dest.host+"/"+x.action.push.repo)) + "\n" + strings.Join(r.steps(), "\n")
	reasons := slices.Clone(x.action.push.reasons)
	if r.answer != nil {
		for i, reason := range reasons {
			if reason != "" {
				reasons[i] = "approval " + r.answer.Approval + " is " + r.answer.State
			}
		}
	}
	// Git sends its whole pack before it reads a response.
	if err := x.drain(); err != nil {
		x.record.Error = err.Error()
		panic(http.ErrAbortHandler)
	}
	h := x.w.Header()
	h.Set("Content-Type", git.ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Crannog-Blocked", strings.TrimPrefix(x.gen.text.String(r.line("git push", "https://"+x.dest.host+"/"+x.action.push.repo)), "crannog: "))
	x.w.WriteHeader(http.StatusOK)
	// An error means that the client has disconnected.
	_, _ = x.w.Write(x.action.push.Refusal(reasons, note))
}

// drain reads the rest of a refused push.
func (x *exchange) drain() error {
	if x.action.push.Body == nil {
		return nil
	}
	return copyCounted(discard{}, x.action.push.Body, func(n int) error {
		if x.traffic.sent.Add(int64(n)) > maxDrain {
			return errTooLarge
		}
		return nil
	})
}

// maxDrain limits the bytes that are read of a refused push.
const maxDrain = 1 << 30

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
