package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
)

// answerTime is how long a question before the agent's user is good for.
const answerTime = 10 * time.Minute

// inputName names the one thing that a client is to ask its user.
const inputName = "approval"

// mayAskHere reports whether the agent's own user may answer: the operator has
// said so, and the client can ask. Many clients cannot, and an answer that
// asks for it would be an error for them.
func (c *call) mayAskHere() bool {
	caps := c.req.ClientCapabilities()
	if c.view.desk.o.Approver != Any || caps == nil || caps.Elicitation == nil {
		return false
	}
	return caps.Elicitation.Form != nil || caps.Elicitation.URL == nil
}

// question is what the agent's user reads and decides by. What an agent chose has nothing in it that is
// not seen, which would make its words read as ours.
func question(sandbox, where, reason string) string {
	return fmt.Sprintf("An agent asks that sandbox %s may reach %s from now on. It says (unchecked): %s",
		text.Strict(sandbox, 100), text.Strict(where, 300), text.Strict(oneLine(reason), 500))
}

// askHere makes the call's answer a question to the agent's user. It looks the
// same for all versions of the protocol.
func (c *call) askHere(b *box, ask api.AskAccess, id string) {
	where := fmt.Sprintf("%s:%d", ask.Host, ask.Port)
	c.ask = &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{inputName: &mcp.ElicitParams{
			Mode:    "form",
			Message: question(label(b.sb.Info()), where, ask.Reason),
			RequestedSchema: &jsonschema.Schema{
				Type: "object",
				Properties: map[string]*jsonschema.Schema{
					"allow": {Type: "boolean", Title: "Allow", Description: "Let the sandbox reach " + where},
				},
				Required: []string{"allow"},
			},
		}},
		RequestState: c.view.desk.state.sign(asked{
			Sandbox: b.sb.ID(), Approval: id, Target: where, Until: time.Now().Add(answerTime).Unix(),
		}),
	}
}

// answered reports whether the client brings what its user said.
func (c *call) answered() bool {
	return c.req.Params.RequestState != "" || len(c.req.Params.InputResponses) > 0
}

// afterAnswer hands on what the agent's user said.
func (c *call) afterAnswer(ctx context.Context, b *box, ask api.AskAccess) (accessOut, error) {
	state, err := c.view.desk.state.check(c.req.Params.RequestState, time.Now())
	if err != nil {
		return accessOut{}, err
	}
	where := fmt.Sprintf("%s:%d", ask.Host, ask.Port)
	if state.Sandbox != b.sb.ID() || state.Target != where || !c.mayAskHere() {
		// What was shown to the user is not what would be allowed.
		return accessOut{}, fault.New(fault.Invalid, codeState, "the answer is to another question").WithHint("call the tool again without it")
	}
	client := c.view.desk.o.Client
	if yes, said := allowed(c.req.Params.InputResponses); yes {
		_, err = client.Approve(ctx, state.Approval, "said before the agent", false)
	} else if said {
		_, err = client.Deny(ctx, state.Approval, "refused before the agent")
	}
	if err != nil && crannog.Code(err) != "approval_over" {
		return accessOut{}, err
	}
	ask.WaitSeconds = 1
	out, err := b.sb.AskAccess(ctx, ask)
	if err != nil {
		return accessOut{}, err
	}
	return c.tellAccess(ctx, b, ask, out), nil
}

// allowed reads the answer: yes only if it was accepted with allow ticked. A
// user who closes the question has not said no.
func allowed(answers mcp.InputResponseMap) (yes, said bool) {
	r, ok := answers[inputName].(*mcp.ElicitResult)
	if !ok || r == nil {
		return false, false
	}
	switch r.Action {
	case "accept":
		allow, _ := r.Content["allow"].(bool)
		return allow, true
	case "decline":
		return false, true
	}
	return false, false
}
