package api

import "time"

// Approval is a question that a sandbox's policy put to people. Text in it
// that a sandbox chose has what could deceive a reader taken out.
type Approval struct {
	ID        string            `json:"id"`
	Sandbox   string            `json:"sandbox"`
	Kind      string            `json:"kind" doc:"What is asked for, such as net.host or git.push."`
	Summary   string            `json:"summary" doc:"One line for people."`
	Facts     map[string]string `json:"facts" doc:"All that a grant is good for, and nothing else."`
	Rule      string            `json:"rule" doc:"The policy's rule that asks."`
	Policy    string            `json:"policy" doc:"Digest of the policy that asks."`
	Digest    string            `json:"digest" doc:"What a grant is bound to."`
	State     string            `json:"state" enum:"pending,approved,spent,denied,expired"`
	Reason    string            `json:"reason,omitempty"`
	Quorum    int               `json:"quorum" doc:"How many different people must approve."`
	Votes     []ApprovalVote    `json:"votes"`
	Always    string            `json:"always,omitempty" doc:"host:port that remember would add to the sandbox's policy; absent if it cannot be remembered."`
	Amendment string            `json:"amendment,omitempty" doc:"host:port that was added to the sandbox's policy."`
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt time.Time         `json:"expires_at" doc:"When the question, or a grant that was not used, ends."`
	DecidedAt *time.Time        `json:"decided_at,omitempty"`
	SpentAt   *time.Time        `json:"spent_at,omitempty"`
}

// ApprovalVote is what one person said.
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
	Remember bool   `json:"remember,omitempty" doc:"Add the host to the sandbox's policy too, so that it is not asked about again."`
}

// Deny is the body of POST /v1/approvals/{id}/deny.
type Deny struct {
	Reason string `json:"reason" minLength:"1" maxLength:"512" doc:"The program inside is told it."`
}

// ApprovalEvent is the data of one event of GET /v1/approvals/events, and the
// body of a webhook call.
type ApprovalEvent struct {
	Type     string   `json:"type" enum:"pending,approved,spent,denied,expired,vote" doc:"The state that the approval came to, or vote."`
	Approval Approval `json:"approval" doc:"As it stands when the event is sent."`
}
