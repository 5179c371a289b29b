package registration

import _ "embed" // the texts

//go:embed SKILL.md
var skill string

//go:embed llms.txt
var llms string

// Skill is what an agent should know about our tools, in the form in which
// agents keep such knowledge.
func Skill() string { return skill }

// LLMs is what we are, for programs that read a site before they use it. It is
// also at the top of the repository.
func LLMs() string { return llms }
