package proxy

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/git"
	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/fault"
)

// push is a git push of which all before the pack was read.
type push struct {
	*git.Request
	repo    string
	reasons []string // beside the commands
}

// fetchGrant is how long a person's yes to a fetch holds: git sends several
// requests for one.
const fetchGrant = 10 * time.Minute

// special judges requests by what they do, where that says more than their
// path. It can only tighten, but for one thing: a fetch sends a POST and
// writes nothing.
func (x *exchange) special(d causeway.Decision) (causeway.Decision, *refusal) {
	op, repo := git.Classify(x.method, x.path, x.r.URL.RawQuery, x.r.Header.Get("Content-Type"))
	switch op {
	case git.None:
		return x.publication(d), nil
	case git.Push:
		return x.judgePush(d, repo)
	case git.FetchRefs, git.Fetch, git.PushRefs:
	}
	if d.Effect == causeway.Deny {
		return d, nil
	}
	own := x.gen.policy.Fetch(x.host, repo)
	if d.Effect == causeway.Ask && d.Rule == policy.RuleWrites && op == git.Fetch {
		d = own
	}
	if stricter(own.Effect, d.Effect) {
		d = own
	}
	if d.Effect != causeway.Ask {
		return d, nil
	}
	return x.askFetch(d, repo)
}

// askFetch asks once for what is one fetch to people.
func (x *exchange) askFetch(d causeway.Decision, repo string) (causeway.Decision, *refusal) {
	key := x.host + "/" + repo + " " + d.Rule + " " + d.Policy
	b := x.box
	b.mu.Lock()
	until, ok := b.fetches[key]
	b.mu.Unlock()
	if ok && time.Now().Before(until) {
		d.Effect = causeway.Allow
		return d, nil
	}
	id, stop := b.put(x.ctx, x.gen, d, x.host, x.port, causeway.Question{
		Kind: causeway.AskRequest, Summary: "fetch from https://" + x.host + "/" + repo,
		Facts: map[string]string{"host": x.host, "port": strconv.Itoa(x.port), "git": "fetch", "repo": repo},
	})
	if stop != nil {
		return d, stop
	}
	b.mu.Lock()
	if len(b.fetches) >= 256 {
		clear(b.fetches) // they are asked about again
	}
	b.fetches[key] = time.Now().Add(fetchGrant)
	b.mu.Unlock()
	x.record.Approval = id
	d.Effect = causeway.Allow
	return d, nil
}

// judgePush reads a push up to its pack and asks the policy about each ref.
func (x *exchange) judgePush(d causeway.Decision, repo string) (causeway.Decision, *refusal) {
	if d.Effect == causeway.Deny {
		return d, nil
	}
	x.record.Kind = causeway.KindGit
	if x.push == nil {
		read, err := git.Parse(x.patient(x.r.Body), strings.Join(x.r.Header.Values("Content-Encoding"), ","))
		x.push = &push{Request: read, repo: repo}
		if err != nil {
			x.push.Body = x.r.Body
			r := &refusal{status: http.StatusOK, code: fault.CodeOf(err), cause: err,
				decision: denied(policy.RulePush, fault.PublicText(err))}
			r.decision.Fix = fault.HintOf(err)
			return d, r
		}
	}
	p := x.push
	x.kind, x.extra = causeway.AskPush, map[string]string{"repo": repo}
	p.reasons = nil
	var lines []string
	for i, c := range p.Commands {
		own := x.weighRef(c)
		reason := ""
		if own.Effect != causeway.Allow {
			reason = own.Rule
		}
		p.reasons = append(p.reasons, reason)
		if stricter(own.Effect, d.Effect) {
			d = own
		}
		lines = append(lines, verb(c)+" "+c.Ref)
		// An object's ID binds its content and all before it, so no hash of
		// the pack is needed: git packs the same commits in other bytes.
		x.extra["ref_"+strconv.Itoa(i)] = c.Ref + " " + c.Old + " " + c.New
	}
	for i, o := range p.Options {
		x.extra["option_"+strconv.Itoa(i)] = o
		if d.Effect == causeway.Allow {
			// To some servers these are orders, such as to merge.
			d.Effect, d.Rule, d.Reason = causeway.Ask, policy.RulePush+".options", "a push option may be an order to the server"
		}
	}
	x.summary = "push to " + x.host + "/" + repo + ": " + strings.Join(lines, ", ")
	return d, nil
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

// weighRef is the policy's word on one ref.
func (x *exchange) weighRef(c git.Command) causeway.Decision {
	r := policy.PushRequest{Host: x.host, Repo: x.push.repo, Ref: c.Ref, Delete: c.Deletes()}
	d := x.gen.policy.Push(r)
	tag := strings.HasPrefix(c.Ref, "refs/tags/")
	if tag && d.Effect == causeway.Allow && !x.listed(c.Ref, func(glob string) bool { return strings.HasPrefix(glob, "refs/tags/") }) {
		// "refs/**" is written with branches in mind, and others release from
		// tags.
		d.Effect, d.Rule, d.Reason = causeway.Ask, policy.RulePush+".tags", "a tag that no rule lists as one"
	}
	// Under a pattern, branches are the box's own: what it drops there is its
	// own too.
	if !c.MayForce() || x.listed(c.Ref, func(glob string) bool { return !tag && strings.Contains(glob, "*") }) {
		return d
	}
	r.Force = true
	forced := x.gen.policy.Push(r)
	if forced.Effect == causeway.Deny && d.Effect != causeway.Deny {
		// The wire does not tell a forced push from another, and a person
		// can. So nothing passes unasked, and nothing honest is stuck.
		forced.Effect = causeway.Ask
		forced.Reason = "this moves a ref that exists, and may drop commits of it"
	}
	if stricter(forced.Effect, d.Effect) {
		return forced
	}
	return d
}

// listed says whether one of the repository's push globs that fit covers the
// ref.
func (x *exchange) listed(ref string, fit func(glob string) bool) bool {
	for _, m := range x.gen.policy.Document().Git.Remotes {
		if m.Host == x.host && matchPath(m.Repo, x.push.repo) &&
			slices.ContainsFunc(m.Push, func(g string) bool { return fit(g) && matchPath(g, ref) }) {
			return true
		}
	}
	return false
}

// refusePush answers in git's own words: of a plain refusal git says that the
// other side hung up, and that everything is up to date.
func (x *exchange) refusePush(r *refusal) {
	x.record.Decision, x.record.Status = r.decision, http.StatusOK
	if r.answer != nil {
		x.record.Approval = r.answer.Approval
	}
	if r.cause != nil {
		x.record.Error = r.cause.Error()
	}
	note := x.gen.text.String(r.line("git push", "https://"+x.host+"/"+x.push.repo)) + "\n" + strings.Join(r.steps(), "\n")
	reasons := slices.Clone(x.push.reasons)
	if r.answer != nil {
		for i, reason := range reasons {
			if reason != "" {
				reasons[i] = "approval " + r.answer.Approval + " is " + r.answer.State
			}
		}
	}
	// Git sends all of its pack before it reads an answer.
	if err := x.drain(); err != nil {
		x.record.Error = err.Error()
		panic(http.ErrAbortHandler)
	}
	h := x.w.Header()
	h.Set("Content-Type", git.ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Crannog-Blocked", strings.TrimPrefix(x.gen.text.String(r.line("git push", "https://"+x.host+"/"+x.push.repo)), "crannog: "))
	x.w.WriteHeader(http.StatusOK)
	// A client that is gone needs no answer.
	_, _ = x.w.Write(x.push.Refusal(reasons, note))
}

// drain reads what is left of a push that goes nowhere.
func (x *exchange) drain() error {
	if x.push.Body == nil {
		return nil
	}
	return pump(discard{}, x.push.Body, func(n int) error {
		if x.sent.Add(int64(n)) > maxDrain {
			return errTooLarge
		}
		return nil
	})
}

// maxDrain bounds what a refused push may send.
const maxDrain = 1 << 30

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
