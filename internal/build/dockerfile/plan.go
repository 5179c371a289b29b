package dockerfile

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/crannog/crannog/internal/fault"
)

// Scratch is the base of a stage that starts with no files.
const Scratch = "scratch"

// Options are a caller's choices for a Dockerfile.
type Options struct {
	Target   string            // name or number of the stage to build; "" is the last one
	Args     map[string]string // values for ARG
	Platform string            // OS/ARCHITECTURE, for the predefined arguments
}

// Stage is a stage that a build needs.
type Stage struct {
	Index    int
	Name     string
	Base     string // an image or Scratch, if Parent is negative
	Parent   int    // index of the stage with whose files this one starts; negative if there is none
	Platform string
	Commands []instructions.Command
	// Steps describe the commands one by one if they come from no Dockerfile.
	Steps []Step
	// Needs lists the stages that have to be built before this one.
	Needs []int
}

// Plan is the part of a Dockerfile that a build needs.
type Plan struct {
	Target int
	Stages map[int]*Stage
	// Globals are the arguments before the first FROM, which a stage can redeclare.
	Globals map[string]string
	Args    map[string]string
	// Platform are the predefined arguments, such as TARGETARCH.
	Platform map[string]string
	lex      *shell.Lex
	names    map[string]int
}

// Plan selects the stages that a target needs.
func (f *File) Plan(o Options) (*Plan, error) {
	p := &Plan{Stages: map[int]*Stage{}, Args: o.Args, Platform: platformArgs(o.Platform), lex: f.lex, names: map[string]int{}}
	if err := p.globals(f.args); err != nil {
		return nil, err
	}
	all := make([]*Stage, len(f.stages))
	for i, s := range f.stages {
		one, err := p.stage(i, s)
		if err != nil {
			return nil, err
		}
		all[i] = one
		if s.Name != "" {
			p.names[strings.ToLower(s.Name)] = i
		}
	}
	p.Target = len(all) - 1
	if o.Target != "" {
		i, ok := p.find(o.Target, len(all))
		if !ok {
			return nil, fault.Newf(fault.Invalid, "build_target_unknown", "the Dockerfile has no stage %.100q", o.Target)
		}
		p.Target = i
	}
	p.addStage(all, p.Target)
	for _, s := range p.Stages {
		if err := p.checkAdds(s.Commands); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addStage adds a stage and the stages that it needs to the plan.
func (p *Plan) addStage(all []*Stage, i int) {
	if p.Stages[i] != nil {
		return
	}
	p.Stages[i] = all[i]
	for _, need := range all[i].Needs {
		p.addStage(all, need)
	}
}

// find returns the stage with a name or a number. It must precede the stage with the given index.
func (p *Plan) find(name string, before int) (int, bool) {
	if i, ok := p.names[strings.ToLower(name)]; ok && i < before {
		return i, true
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < before {
		return i, true
	}
	return 0, false
}

// From returns the stage that --from refers to in a stage, and false if it refers to an image.
func (p *Plan) From(stage int, name string) (int, bool) { return p.find(name, stage) }

// globals sets the arguments before the first FROM.
func (p *Plan) globals(args []instructions.ArgCommand) error {
	p.Globals = map[string]string{}
	for _, command := range args {
		for _, a := range command.Args {
			value, err := p.argument(a, p.merged(p.Platform, p.Globals))
			if err != nil {
				return err
			}
			if value != nil {
				p.Globals[a.Key] = *value
			}
		}
	}
	return nil
}

// merged returns variables as NAME=VALUE. Later maps take precedence.
func (p *Plan) merged(list ...map[string]string) []string {
	all := map[string]string{}
	for _, m := range list {
		maps.Copy(all, m)
	}
	return Environ(all)
}

// argument returns the caller's value for an ARG, or its default.
func (p *Plan) argument(a instructions.KeyValuePairOptional, env []string) (*string, error) {
	if v, ok := p.Args[a.Key]; ok {
		return &v, nil
	}
	if a.Value == nil {
		return nil, nil
	}
	v, err := p.Word(*a.Value, env)
	return &v, err
}

// stage returns the description of a stage.
func (p *Plan) stage(i int, s instructions.Stage) (*Stage, error) {
	env := p.merged(p.Platform, p.Globals)
	base, err := p.Word(s.BaseName, env)
	if err != nil {
		return nil, err
	}
	if base == "" {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "Dockerfile line %d: FROM %s names no image", line(s.Location), s.BaseName)
	}
	platform, err := p.Word(s.Platform, env)
	if err != nil {
		return nil, err
	}
	out := &Stage{Index: i, Name: s.Name, Base: base, Parent: -1, Platform: platform, Commands: s.Commands}
	// FROM cannot refer to a stage by number.
	if parent, ok := p.names[strings.ToLower(base)]; ok {
		out.Parent, out.Base = parent, ""
		out.Needs = append(out.Needs, parent)
	}
	for _, c := range s.Commands {
		list, err := sources(c)
		if err != nil {
			return nil, Refused(c, "%s", firstLine(err))
		}
		for _, from := range list {
			if need, ok := p.find(from, i); ok && !slices.Contains(out.Needs, need) {
				out.Needs = append(out.Needs, need)
			}
			if n, err := strconv.Atoi(from); err == nil && (n < 0 || n >= i) {
				return nil, Refused(c, "--from=%s does not refer to an earlier stage", from)
			}
			if strings.EqualFold(from, s.Name) && s.Name != "" {
				return nil, Refused(c, "--from=%s refers to its own stage", from)
			}
		}
	}
	return out, nil
}

// sources returns the stages and images from which an instruction takes files.
func sources(c instructions.Command) (list []string, err error) {
	switch c := c.(type) {
	case *instructions.CopyCommand:
		if c.From != "" {
			list = append(list, c.From)
		}
	case *instructions.RunCommand:
		// The flags are parsed without values, because only their names matter.
		if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
			return nil, err
		}
		for _, m := range instructions.GetMounts(c) {
			if m.From != "" {
				list = append(list, m.From)
			}
		}
	}
	return list, nil
}

// platformArgs are the arguments that each Dockerfile may declare without a value.
func platformArgs(platform string) map[string]string {
	parts := strings.SplitN(platform+"//", "/", 4)
	out := map[string]string{}
	for _, prefix := range []string{"TARGET", "BUILD"} {
		out[prefix+"PLATFORM"], out[prefix+"OS"], out[prefix+"ARCH"], out[prefix+"VARIANT"] = platform, parts[0], parts[1], parts[2]
	}
	return out
}
