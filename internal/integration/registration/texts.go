package registration

import _ "embed" // for the texts of this package

//go:embed SKILL.md
var skill string

//go:embed llms.txt
var llms string

// Skill explains the MCP tools to agents, in the format in which agents store skills.
func Skill() string { return skill }

// LLMs describes the product for language models that read a site before they use it. The same text
// is at the top of the repository.
func LLMs() string { return llms }
