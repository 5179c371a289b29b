package approval

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
)

// Default bounds. A person who decides one request a minute can keep up with them.
const (
	defaultExpiry = 30 * time.Minute
	defaultOpen   = 5
	defaultRecent = 20
	defaultWindow = 10 * time.Minute
)

// Options configure a Service. Store, Lookup and Log are required.
type Options struct {
	Store Store
	// Lookup returns the owner of a sandbox, and false if it is not live.
	Lookup func(sandbox string) (owner string, ok bool)
	Log    *slog.Logger
	// Amend adds "host:port" to what a sandbox's policy allows. If it is nil, approvals are valid
	// only once.
	Amend func(ctx context.Context, sandbox, endpoint string) error
	// Record writes a step into the audit log. Only tests leave it nil. A decision counts, and a
	// grant is used, only with an audit entry.
	Record func(ctx context.Context, step Step, a Approval, v *Vote) error
	// Zero Bounds mean the defaults, never unlimited.
	Bounds Bounds
}

// Service manages approval requests and their decisions. It is safe for concurrent use, and several
// processes may share one store.
type Service struct {
	o     Options
	pulse pulse
}

var _ egress.Approver = (*Service)(nil)

// New returns a Service. Close ends all waiting calls.
func New(o Options) (*Service, error) {
	if o.Store == nil || o.Lookup == nil || o.Log == nil {
		return nil, errors.New("make the approval service: an option is missing")
	}
	if o.Bounds.Open <= 0 {
		o.Bounds.Open = defaultOpen
	}
	if o.Bounds.Recent <= 0 {
		o.Bounds.Recent = defaultRecent
	}
	if o.Bounds.Window <= 0 {
		o.Bounds.Window = defaultWindow
	}
	if o.Record == nil {
		o.Record = func(context.Context, Step, Approval, *Vote) error { return nil }
	}
	s := &Service{o: o}
	s.pulse.init(s.sweep)
	return s, nil
}

// Close ends all waiting calls: Ask returns pending, Watch returns. Requests remain stored.
func (s *Service) Close() { s.pulse.close() }

// sweep ends expired requests of all callers.
func (s *Service) sweep(ctx context.Context) (int64, error) {
	last, err := s.o.Store.SweepApprovals(ctx, now())
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn("approvals not swept", "err", err)
	}
	return last, err
}

// Get returns one approval.
func (s *Service) Get(ctx context.Context, caller Caller, id string) (Approval, error) {
	if _, err := s.sweep(ctx); err != nil {
		return Approval{}, err
	}
	a, err := s.o.Store.Approval(ctx, id)
	if err != nil {
		return Approval{}, err
	}
	if !caller.maySee(a) {
		return Approval{}, Unknown(id)
	}
	return a, nil
}

// List returns the approvals that the caller may see, the newest first.
func (s *Service) List(ctx context.Context, caller Caller, q Query) ([]Approval, error) {
	if _, err := s.sweep(ctx); err != nil {
		return nil, err
	}
	q, ok := scope(caller, q)
	if !ok {
		return nil, nil
	}
	return s.o.Store.Approvals(ctx, q)
}

// scope narrows a query to what the caller may see.
func scope(caller Caller, q Query) (Query, bool) {
	q.Owner, q.AllOwners = caller.KeyID, caller.Local
	return q, caller.Local || caller.KeyID != ""
}

// Approve counts the caller's approval. With remember it also adds the host to the sandbox's
// policy, so that no further approval is required.
func (s *Service) Approve(ctx context.Context, caller Caller, id, reason string, remember bool) (Approval, error) {
	a, err := s.Get(ctx, caller, id)
	if err != nil {
		return Approval{}, err
	}
	// An ended sandbox cannot use a grant, and its name may be reused.
	if owner, ok := s.o.Lookup(a.Sandbox); !ok || owner != a.Owner {
		return Approval{}, fault.New(fault.Conflict, "sandbox_gone", "the sandbox of this request has ended")
	}
	if err := mayGrant(caller, a); err != nil {
		return Approval{}, err
	}
	v := Vote{Who: caller.name(), Granted: true, Reason: text.Strict(reason, maxText), At: now()}
	if remember {
		if v.Amendment, err = s.amendment(a); err != nil {
			return Approval{}, err
		}
	}
	if a, err = s.vote(ctx, a, v); err != nil || v.Amendment == "" {
		return a, err
	}
	// Grant first: if the policy change fails, the person has still allowed this one action, and
	// gets an error about the policy.
	if err := s.o.Amend(ctx, a.Sandbox, v.Amendment); err != nil {
		err = errors.Join(err, s.o.Store.DropAmendment(ctx, a.ID))
		s.o.Log.Error("approval not remembered", "sandbox", a.Sandbox, "approval", a.ID, "err", err)
		return a, fault.Wrap(err, fault.Unavailable, "not_remembered",
			"it is allowed this once, but could not be added to the sandbox's policy").
			WithHint("the next such request asks again")
	}
	return a, nil
}

// Deny ends a request, or revokes an unused grant. It requires a reason.
func (s *Service) Deny(ctx context.Context, caller Caller, id, reason string) (Approval, error) {
	if reason = text.Strict(reason, maxText); reason == "" {
		return Approval{}, fault.New(fault.Invalid, "reason_missing", "a denial needs a reason").
			WithHint("the program inside is told it, so say what it should do instead")
	}
	a, err := s.Get(ctx, caller, id)
	if err != nil {
		return Approval{}, err
	}
	return s.vote(ctx, a, Vote{Who: caller.name(), Reason: reason, At: now()})
}

func (s *Service) vote(ctx context.Context, a Approval, v Vote) (Approval, error) {
	if err := s.o.Record(ctx, StepVoted, a, &v); err != nil {
		return Approval{}, err
	}
	a, err := s.o.Store.VoteApproval(ctx, a.ID, v)
	if err != nil {
		return Approval{}, err
	}
	s.o.Log.Info("approval decided", "sandbox", a.Sandbox, "approval", a.ID, "who", v.Who, "granted", v.Granted, "state", string(a.State))
	s.pulse.wake()
	if a.State == Pending {
		return a, nil
	}
	// A grant works only with an audit entry, so a missing entry permits nothing.
	return a, s.o.Record(ctx, StepDecided, a, &v)
}

// Step is a change of a request that has an audit entry.
type Step string

// Steps of a request.
const (
	StepAsked   Step = "asked"
	StepVoted   Step = "voted"
	StepDecided Step = "decided"
	StepSpent   Step = "spent"
)

// Retire ends the open requests of a sandbox, because they were made under rules that have changed.
// It keeps the requests under the policy with the digest keep. If keep is "", it ends all requests,
// as needed after a sandbox has ended or a secret has changed. Call it once the change is in force.
func (s *Service) Retire(ctx context.Context, sandbox, keep, reason string) error {
	if err := s.o.Store.RetireApprovals(ctx, sandbox, keep, text.Strict(reason, maxText), now()); err != nil {
		return fmt.Errorf("retire approvals of %s: %w", sandbox, err)
	}
	s.pulse.wake()
	return nil
}

// Facts that describe the destination of a request.
const (
	FactHost = "host"
	FactPort = "port"
)

// amendment returns what a remembered grant would add to the policy, or an error that explains why
// it cannot.
func (s *Service) amendment(a Approval) (string, error) {
	endpoint := Amendable(a)
	switch {
	case ofRule(a):
		return "", fault.New(fault.Invalid, "not_rememberable", "the policy's own rule for this host requires an approval each time, even if another rule allows the host").
			WithHint("approve it once, or change the rule: crannog policy set")
	case endpoint == "":
		return "", fault.New(fault.Invalid, "not_rememberable", "only a host can be allowed permanently, and this request is about more than one").
			WithHint("approve it once, or change the sandbox's policy")
	case a.Quorum > 1:
		// Otherwise one person's decision would be permanent where several people are required for
		// a single action.
		return "", fault.New(fault.Invalid, "not_rememberable", "a request that several people must decide cannot be allowed permanently").
			WithHint("approve it once, or change the sandbox's policy")
	case s.o.Amend == nil:
		return "", fault.New(fault.Unsupported, "not_rememberable", "this server cannot change the policy of a running sandbox").
			WithHint("approve it once")
	}
	return endpoint, nil
}

// Amendable returns the "host:port" that remembering this request would allow, or "".
func Amendable(a Approval) string {
	if a.Kind != egress.AskHost && a.Kind != egress.AskRequest || ofRule(a) {
		return ""
	}
	host, port := a.Facts[FactHost], a.Facts[FactPort]
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port || !plainHost(host) {
		return ""
	}
	return host + ":" + port
}

// ofRule reports whether the request comes from the rule of a listed host. Such a rule requires
// approval even if another rule allows the host, so adding the host to the policy would have no
// effect.
func ofRule(a Approval) bool { return strings.HasPrefix(a.Rule, "host:") }

// plainHost rejects everything except one exact name or IPv4 address, in particular wildcards.
func plainHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Is4()
	}
	for _, r := range host {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' {
			return false
		}
	}
	return host != "" && len(host) <= 253
}

// now returns the time without its monotonic part, because times are compared across processes.
func now() time.Time { return time.Now().UTC().Round(0) }
