package dockerfile

import (
	"encoding/json"
	"fmt"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Step is an instruction that comes from no Dockerfile.
type Step struct {
	Command instructions.Command
	// Title describes the step in progress and errors.
	Title string
	// Fresh runs the step even if the cache has its result.
	Fresh bool
}

// Steps returns a plan of one stage with these steps. Variables in their words are replaced, and
// quotes are kept.
func Steps(base, platform string, steps []Step) *Plan {
	lex := shell.NewLex('\\')
	lex.SkipProcessQuotes = true
	one := &Stage{Name: "template", Base: base, Parent: -1, Platform: platform, Steps: steps}
	for _, s := range steps {
		one.Commands = append(one.Commands, s.Command)
	}
	return &Plan{Stages: map[int]*Stage{0: one}, Globals: map[string]string{}, Platform: platformArgs(platform), lex: lex, names: map[string]int{}}
}

// RunArgs returns a RUN of a program with arguments, without a shell.
func RunArgs(args ...string) (instructions.Command, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	return ParseOne("RUN " + string(text))
}

// Location names an instruction for an error: its step, or its line in the Dockerfile.
func (s *Stage) Location(i int, c instructions.Command) string {
	if i < len(s.Steps) {
		return s.Steps[i].Title
	}
	return fmt.Sprintf("Dockerfile line %d", line(c.Location()))
}
