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

// promptLifetime is how long a prompt for the agent's user is valid.
const promptLifetime = 10 * time.Minute

// inputName names the input that a client requests from its user.
const inputName = "approval"

// canPromptUser reports whether the agent's own user may decide: the operator allows it, and the
// client supports prompts. Many clients do not, and would report a prompt as an error.
func (c *call) canPromptUser() bool {
	caps := c.req.ClientCapabilities()
	if c.view.tenant.o.Approver != Any || caps == nil || caps.Elicitation == nil {
		return false
	}
	return caps.Elicitation.Form != nil || caps.Elicitation.URL == nil
}

// promptText returns the prompt for the agent's user. Control characters in text that the agent
// chose are made visible, so that the text cannot imitate Crannog's own.
func promptText(sandbox, where, reason string) string {
	return fmt.Sprintf("An agent requests that sandbox %s may reach %s from now on. Its reason (not checked): %s",
		text.Strict(sandbox, 100), text.Strict(where, 300), text.Strict(oneLine(reason), 500))
}

// promptUser turns the call's result into a prompt for the agent's user, for all versions of the
// protocol.
func (c *call) promptUser(b *agentSandbox, ask api.AskAccess, id string) {
	where := fmt.Sprintf("%s:%d", ask.Host, ask.Port)
	c.prompt = &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{inputName: &mcp.ElicitParams{
			Mode:    "form",
			Message: promptText(label(b.sb.Info()), where, ask.Reason),
			RequestedSchema: &jsonschema.Schema{
				Type: "object",
				Properties: map[string]*jsonschema.Schema{
					"allow": {Type: "boolean", Title: "Allow", Description: "Let the sandbox reach " + where},
				},
				Required: []string{"allow"},
			},
		}},
		RequestState: c.view.tenant.state.sign(promptState{
			Sandbox: b.sb.ID(), Approval: id, Target: where, Until: time.Now().Add(promptLifetime).Unix(),
		}),
	}
}

// answered reports whether the call contains the user's answer.
func (c *call) answered() bool {
	return c.req.Params.RequestState != "" || len(c.req.Params.InputResponses) > 0
}

// afterDecision processes the decision of the agent's user.
func (c *call) afterDecision(ctx context.Context, b *agentSandbox, ask api.AskAccess) (accessOut, error) {
	state, err := c.view.tenant.state.check(c.req.Params.RequestState, time.Now())
	if err != nil {
		return accessOut{}, err
	}
	where := fmt.Sprintf("%s:%d", ask.Host, ask.Port)
	if state.Sandbox != b.sb.ID() || state.Target != where || !c.canPromptUser() {
		// The host in the prompt is not the one that would be allowed.
		return accessOut{}, fault.New(fault.Invalid, codeState, "the answer belongs to another prompt").WithHint("call the tool again without it")
	}
	client := c.view.tenant.o.Client
	if yes, answered := allowed(c.req.Params.InputResponses); yes {
		_, err = client.Approve(ctx, state.Approval, "approved at the agent's client", false)
	} else if answered {
		_, err = client.Deny(ctx, state.Approval, "denied at the agent's client")
	}
	if err != nil && crannog.Code(err) != "approval_over" {
		return accessOut{}, err
	}
	ask.WaitSeconds = 1
	out, err := b.sb.AskAccess(ctx, ask)
	if err != nil {
		return accessOut{}, err
	}
	return c.reportAccess(ctx, b, ask, out), nil
}

// allowed reads the answer. It is an approval only if the prompt was accepted with allow ticked.
// answered is false if the user closed the prompt.
func allowed(answers mcp.InputResponseMap) (yes, answered bool) {
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
