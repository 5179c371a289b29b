package devcontainer

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/crannog/crannog/internal/fault"
)

// Options are what the user, and not the file, decides.
type Options struct {
	Dir    string // the workspace: an absolute path without symbolic links
	Config string // name of a directory in .devcontainer, or ""
	LookUp func(string) (string, bool)
	// LocalEnv are the variables of this machine that the file may read.
	LocalEnv []string
	// NewLock ignores the lock file, because a new one is made.
	NewLock bool
}

// Plan is what a configuration asks for, in a form in which all of it is supported and allowed.
type Plan struct {
	ID   string `json:"id"`
	File string `json:"file"` // relative to the workspace
	Name string `json:"name,omitempty"`
	// Image or Build is set.
	Image string     `json:"image,omitempty"`
	Build *BuildPlan `json:"build,omitempty"`

	ContainerEnv map[string]string  `json:"container_env,omitempty"`
	RemoteEnv    map[string]*string `json:"remote_env,omitempty"` // nil removes a variable
	User         string             `json:"user,omitempty"`
	Folder       string             `json:"workspace_folder"`
	Links        []Link             `json:"links,omitempty"`
	Mounts       []ReadOnlyMount    `json:"mounts,omitempty"`
	Volumes      []VolumeMount      `json:"volumes,omitempty"`
	Ports        []int              `json:"forward_ports,omitempty"`
	// PortAttributes are those of Ports.
	PortAttributes map[int]PortAttributes `json:"port_attributes,omitempty"`
	Stages         []Stage                `json:"commands,omitempty"`
	Wanted
	// Installs are the features in the order of their installation, once they are resolved.
	Installs []Install `json:"installs,omitempty"`
	Notes    []string  `json:"notes,omitempty"`

	remoteUser bool // User is the remoteUser of the configuration
}

// Wanted are the features of the configuration.
type Wanted struct {
	Features     []Request `json:"features,omitempty"`
	FeatureOrder []string  `json:"feature_order,omitempty"`
	// Locked has the references with digests of the lock file; nil without one.
	Locked map[string]string `json:"locked,omitempty"`
}

// BuildPlan is a build. Its paths are on the host and inside the workspace.
type BuildPlan struct {
	Dockerfile string            `json:"dockerfile"`
	Context    string            `json:"context"`
	Target     string            `json:"target,omitempty"`
	Args       map[string]string `json:"args,omitempty"`
}

// Link is a symbolic link inside that makes a directory of the workspace visible at another path.
type Link struct {
	At string `json:"at"`
	To string `json:"to"`
}

// ReadOnlyMount shows a file or a directory of the workspace at another path.
type ReadOnlyMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Stage is a lifecycle command.
type Stage struct {
	Name    string  `json:"name"`
	Command Command `json:"command"`
	// Feature is the reference of the feature that has the command, or "".
	Feature string `json:"feature,omitempty"`
}

// Title names the command for people, and distinguishes it from the plan's other ones.
func (s Stage) Title() string {
	if s.Feature == "" {
		return s.Name
	}
	return s.Name + " of " + s.Feature
}

// lifecycle has the commands of a configuration or a feature.
type lifecycle struct {
	OnCreate      Command `json:"onCreateCommand"`
	UpdateContent Command `json:"updateContentCommand"`
	PostCreate    Command `json:"postCreateCommand"`
	PostStart     Command `json:"postStartCommand"`
	PostAttach    Command `json:"postAttachCommand"`
}

// stages returns the commands that are set, in the order of stageNames.
func (l lifecycle) stages(feature string) (list []Stage) {
	for i, c := range []Command{l.OnCreate, l.UpdateContent, l.PostCreate, l.PostStart, l.PostAttach} {
		if len(c.Parts) > 0 {
			list = append(list, Stage{stageNames[i], c, feature})
		}
	}
	return list
}

// stageNames are the names of the lifecycle commands, in the order in which they run.
var stageNames = []string{"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand"}

// inStageOrder sorts commands by the order in which they run. Those of the same name stay in theirs.
func inStageOrder(list []Stage) []Stage {
	slices.SortStableFunc(list, func(a, b Stage) int { return slices.Index(stageNames, a.Name) - slices.Index(stageNames, b.Name) })
	return list
}

// WorkspaceInside is where a sandbox shows the workspace.
const WorkspaceInside = "/workspace"

// planner collects problems while it makes a plan.
type planner struct {
	options  Options
	root     *os.Root
	config   Config
	plan     Plan
	problems []Problem
}

func (p *planner) refuse(property, reason string) {
	problem := Problem{property, reason}
	if !slices.Contains(p.problems, problem) {
		p.problems = append(p.problems, problem)
	}
}

// Make finds and reads a configuration and returns its plan. An error of the kind Unsupported names
// everything at once that is not supported.
func Make(o Options) (Plan, error) {
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return Plan{}, err
	}
	defer root.Close()
	file, err := Find(root, o.Config)
	if err != nil {
		return Plan{}, err
	}
	data, err := Read(root, file)
	if err != nil {
		return Plan{}, err
	}
	return planOf(o, root, file, data)
}

func planOf(o Options, root *os.Root, file string, data []byte) (Plan, error) {
	invalid := func(err error) error {
		if e, ok := errors.AsType[*fault.Error](err); ok {
			return fault.New(e.Kind, e.Code, file+": "+e.Text)
		}
		return err
	}
	all, err := parse(data)
	if err != nil {
		return Plan{}, invalid(err)
	}
	p := &planner{options: o, root: root, plan: Plan{ID: ID(o.Dir, file), File: file}}
	p.plan.Notes = inspect(all, p.refuse)
	p.expand(all)
	if p.config, err = decode(all); err != nil {
		return Plan{}, invalid(err)
	}
	c := &p.config
	p.plan.Name, p.plan.ContainerEnv, p.plan.RemoteEnv = c.Name, c.ContainerEnv, c.RemoteEnv
	p.plan.User, p.plan.remoteUser = c.RemoteUser, c.RemoteUser != ""
	if p.plan.User == "" {
		p.plan.User = c.ContainerUser
	}
	p.plan.FeatureOrder = c.FeatureOrder
	p.checkNames()
	p.image()
	p.workspace()
	p.mounts()
	p.ports()
	p.features()
	if !o.NewLock {
		if err := p.lock(); err != nil {
			return Plan{}, err
		}
	}
	p.plan.Stages = c.stages("")
	return p.plan, unsupported(file, p.problems)
}

// expand replaces the variables. The workspace's folder inside is expanded first, because the
// others may refer to it.
func (p *planner) expand(all map[string]any) {
	v := variables{
		dir: p.options.Dir, id: p.plan.ID, lookUp: p.options.LookUp, refuse: p.refuse,
		mayRead: func(name string) bool { return slices.Contains(p.options.LocalEnv, name) },
	}
	folder, _ := v.walk("workspaceFolder", all["workspaceFolder"]).(string)
	if folder == "" {
		folder = "/workspaces/" + filepath.Base(p.options.Dir)
	}
	if !path.IsAbs(folder) || strings.ContainsRune(folder, 0) {
		p.refuse("workspaceFolder", "it is not an absolute path")
		folder = "/workspaces/invalid"
	}
	p.plan.Folder = path.Clean(folder)
	v.folder = p.plan.Folder
	for name, value := range all {
		switch {
		case name == "workspaceFolder", name == "customizations":
			continue
		case refused[name] != "":
			delete(all, name)
			continue
		}
		if _, ok := ignored[name]; ok {
			delete(all, name)
			continue
		}
		v.container = name == "remoteEnv"
		all[name] = v.walk(name, value)
	}
	delete(all, "customizations")
	delete(all, "workspaceFolder")
}

// checkNames refuses names and values that the variables of a command cannot have, and users that
// would become other instructions of a Dockerfile.
func (p *planner) checkNames() {
	if strings.ContainsFunc(p.plan.User, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) || c == '$' || c == '\\' }) {
		p.refuse("remoteUser", fmt.Sprintf("%.60q is not the name of a user", p.plan.User))
	}
	bad := func(name string) bool { return name == "" || strings.ContainsAny(name, "=\x00") }
	for name, value := range p.plan.ContainerEnv {
		if bad(name) || strings.ContainsRune(value, 0) {
			p.refuse("containerEnv", fmt.Sprintf("%q is not the name of a variable, or its value has a zero byte", name))
		}
	}
	for name := range p.plan.RemoteEnv {
		if bad(name) {
			p.refuse("remoteEnv", fmt.Sprintf("%q is not the name of a variable", name))
		}
	}
}

func (p *planner) image() {
	c := &p.config
	b := c.Build
	if b == nil && c.DockerFile != "" {
		b = &Build{}
	}
	if b != nil {
		if b.Dockerfile == "" {
			b.Dockerfile = c.DockerFile
		}
		if b.Context == "" {
			b.Context = c.Context
		}
	}
	switch {
	case b != nil && b.Dockerfile != "":
		if c.Image != "" {
			p.refuse("image", "build is set as well")
		}
		p.build(b)
	case c.Image != "":
		p.plan.Image = c.Image
	case slices.ContainsFunc(p.problems, func(p Problem) bool { return p.Property == "dockerComposeFile" }):
		// dockerComposeFile was refused, which explains why there is no image.
	default:
		p.refuse("image", "neither image nor build.dockerfile is set")
	}
}

func (p *planner) build(b *Build) {
	plan := &BuildPlan{Target: b.Target, Args: b.Args}
	var err error
	if plan.Dockerfile, err = p.within(b.Dockerfile); err != nil {
		p.refuse("build.dockerfile", err.Error())
	}
	context := b.Context
	if context == "" {
		context = "."
	}
	if plan.Context, err = p.within(context); err != nil {
		p.refuse("build.context", err.Error())
	}
	p.plan.Build = plan
}

// within returns the real path of a file of the workspace. Relative names start at the directory
// of the configuration. A link that leads out of the workspace would otherwise show the sandbox
// files of the host.
func (p *planner) within(name string) (string, error) {
	full := filepath.FromSlash(name)
	if !filepath.IsAbs(full) {
		full = filepath.Join(p.options.Dir, filepath.FromSlash(path.Dir(p.plan.File)), full)
	}
	outside := fmt.Errorf("%q is outside the workspace", name)
	if !inside(p.options.Dir, filepath.Clean(full)) {
		return "", outside
	}
	real, err := filepath.EvalSymlinks(full)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q does not exist in the workspace", name)
	case !inside(p.options.Dir, real):
		return "", outside
	}
	return real, nil
}

func inside(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
