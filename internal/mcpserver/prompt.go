package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// prompts adds prompts that a user may start from.
func (w *view) prompts() {
	w.srv.AddPrompt(&mcp.Prompt{
		Name: "review_changes", Title: "Review changes",
		Description: "Have the agent explain and check its changes in the sandbox before they are applied",
	}, fixed("Review all changes in the sandbox's /workspace since the start. Use the tools of crannog: "+
		"fetch_changes with diff, then read_file if you need more. For each changed file say in a sentence what changed and why, "+
		"then name possible problems: missing tests, changed behaviour, files that run by themselves such as hooks and CI workflows, secrets. "+
		"Run the tests in the sandbox and report the results. Change nothing."))
	w.srv.AddPrompt(&mcp.Prompt{
		Name: "explain_blocked", Title: "Explain what was blocked",
		Description: "Have the agent list the policy's denials, and what it needs",
	}, fixed("Say which requests from the sandbox the policy has blocked so far and what each was for. Use the tool policy to see what is allowed. "+
		"For each, say whether the task can be done without it. Use request_access only for hosts that the task needs, with the reason in one sentence."))
}

func fixed(text string) mcp.PromptHandler {
	return func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
	}
}
