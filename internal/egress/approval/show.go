package approval

import (
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/host/text"
)

// Maximum lengths of displayed texts. Values of facts may be longer than a line, because the
// important part may be at the end of a path.
const (
	showLine  = 160
	showValue = 2048
)

// Show converts a request for display. Every text that a sandbox could control is made inert by
// text.Strict.
func Show(a Approval) api.Approval {
	out := api.Approval{
		ID: a.ID, Sandbox: text.Strict(a.Sandbox, maxName), Kind: text.Strict(a.Kind, maxName), Summary: text.Strict(a.Summary, showLine),
		Facts: make(map[string]string, len(a.Facts)), Rule: text.Strict(a.Rule, maxText), Policy: text.Strict(a.Policy, maxText),
		Digest: a.Digest, State: string(a.State), Reason: text.Strict(a.Reason, maxText), Quorum: a.Quorum,
		Votes: make([]api.ApprovalVote, 0, len(a.Votes)), Amendment: text.Strict(a.Amendment, maxText),
		CreatedAt: a.Created, ExpiresAt: a.Expires, DecidedAt: timeOrNil(a.Decided), SpentAt: timeOrNil(a.Spent),
	}
	if a.Quorum <= 1 {
		out.Always = Amendable(a)
	}
	for name, value := range a.Facts {
		out.Facts[text.Strict(name, maxFactName)] = text.Strict(value, showValue)
	}
	for _, v := range a.Votes {
		out.Votes = append(out.Votes, api.ApprovalVote{Who: v.Who, Granted: v.Granted, Reason: text.Strict(v.Reason, maxText), At: v.At})
	}
	return out
}

// ShowEvent converts an event for display.
func ShowEvent(e Event) api.ApprovalEvent {
	return api.ApprovalEvent{Type: e.Type, Approval: Show(e.Approval)}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
