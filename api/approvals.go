package api

import "time"

// Approval is an approval request of a sandbox. Text that the sandbox chose is
// sanitised: characters that could deceive a reader are removed.
type Approval struct {
	ID        string            `json:"id"`
	Sandbox   string            `json:"sandbox"`
	Kind      string            `json:"kind" doc:"Kind of the requested action, such as net.host or git.push."`
	Summary   string            `json:"summary" doc:"One line for people."`
	Facts     map[string]string `json:"facts" doc:"The facts that a grant is valid for."`
	Rule      string            `json:"rule" doc:"Rule of the policy that asks."`
	Policy    string            `json:"policy" doc:"Digest of the policy that asks."`
	Digest    string            `json:"digest" doc:"Digest that a grant is bound to."`
	State     string            `json:"state" enum:"pending,approved,spent,denied,expired"`
	Reason    string            `json:"reason,omitempty"`
	Quorum    int               `json:"quorum" doc:"Number of different people who must approve."`
	Votes     []ApprovalVote    `json:"votes"`
	Always    string            `json:"always,omitempty" doc:"host:port that remember would add to the sandbox's policy; absent if it cannot be remembered."`
	Amendment string            `json:"amendment,omitempty" doc:"host:port that was added to the sandbox's policy."`
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt time.Time         `json:"expires_at" doc:"Time at which the request, or an unused grant, expires."`
	DecidedAt *time.Time        `json:"decided_at,omitempty"`
	SpentAt   *time.Time        `json:"spent_at,omitempty"`
}

// ApprovalVote is the decision of one person.
type ApprovalVote struct {
	Who     string    `json:"who" doc:"ID of an API key, or local."`
	Granted bool      `json:"granted"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
}

// ApprovalList is the answer of GET /v1/approvals.
type ApprovalList struct {
	Approvals []Approval `json:"approvals" doc:"The newest first."`
}

// Approve is the body of POST /v1/approvals/{id}/approve.
type Approve struct {
	Reason   string `json:"reason,omitempty" maxLength:"512"`
	Remember bool   `json:"remember,omitempty" doc:"Also add the host to the sandbox's policy."`
}

// Deny is the body of POST /v1/approvals/{id}/deny.
type Deny struct {
	Reason string `json:"reason" minLength:"1" maxLength:"512" doc:"Reason for the program inside."`
}

// ApprovalEvent is the data of one event of GET /v1/approvals/events, and the body of a webhook
// call.
type ApprovalEvent struct {
	Type     string   `json:"type" enum:"pending,approved,spent,denied,expired,vote" doc:"New state of the approval request, or vote."`
	Approval Approval `json:"approval" doc:"The approval request when the event is sent."`
}
