package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// prompts offers texts that a user may start from.
func (w *view) prompts() {
	w.srv.AddPrompt(&mcp.Prompt{
		Name: "review_changes", Title: "Review what was changed",
		Description: "Have the agent explain and check what it changed in the sandbox before anything is taken over",
	}, fixed("Review everything that was changed in the sandbox's /workspace since the start. Use the tools of crannog: "+
		"fetch_changes with diff, then read_file where more is needed. For each changed file say in a sentence what changed and why, "+
		"then name what could be wrong with it: missing tests, changed behaviour, files that run by themselves such as hooks and CI workflows, secrets. "+
		"Run the tests in the sandbox and say what they show. Change nothing."))
	w.srv.AddPrompt(&mcp.Prompt{
		Name: "explain_blocked", Title: "Explain what was blocked",
		Description: "Have the agent say what the policy refused, and what it needs",
	}, fixed("Say which requests from the sandbox the policy has blocked so far and what each was for. Use the tool policy to see what is allowed. "+
		"For each, say whether the task can be done without it. Ask with request_access only for what it cannot be done without, with the reason in one sentence."))
}

func fixed(text string) mcp.PromptHandler {
	return func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
	}
}
