package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

// engineFlags choose what isolates a new sandbox.
type engineFlags struct {
	engine     string
	atLeast    string
	containers bool
}

// mountFlags choose directories to show beside the workspace.
type mountFlags struct {
	mounts  []string
	volumes []string
}

// sandboxFlags are the flags about how a sandbox is created.
type sandboxFlags struct {
	name        string
	template    string
	from        string
	onEnd       string
	wake        bool
	workspace   string
	noWorkspace bool
	mountFlags
	ttl      string
	env      []string
	envFiles []string
	bytesEnv []string // variables of the command only, which may be invalid UTF-8; a sandbox's own may not
	metadata []string
	tools    string
	engineFlags
	// deterministic starts from the template with a fixed clock and fixed random numbers.
	deterministic bool
	agentTools    bool // an agent runs, which needs host tools
	// variables is the result of env and envFiles, set by sandboxOptions.
	variables map[string]string
	imageFlags
	accessFlags
}

// add defines the flags.
func (b *sandboxFlags) add(f *pflag.FlagSet) {
	f.StringVar(&b.name, "name", "", "keep the sandbox under this `name`")
	f.StringVar(&b.template, "template", "", "template or snapshot to start from (default base)")
	f.StringVar(&b.image, "image", "", "start from an OCI `image`, such as python:3.12-slim; nothing of the host's system is visible then")
	f.StringVar(&b.pull, "pull", "", "`when` to fetch the image: missing, always or never (default missing)")
	f.StringVar(&b.from, "from", "", "start from a `snapshot`, by name or ID, in place of a template")
	f.StringVar(&b.onEnd, "on-end", "", "`action` at the end of --ttl: kill, pause or pause-files (default kill)")
	f.BoolVar(&b.wake, "wake", false, "resume automatically on incoming traffic while paused")
	f.StringVar(&b.workspace, "workspace", "", "host `directory` to mount copy-on-write at /workspace (default: the current one)")
	f.BoolVar(&b.noWorkspace, "no-workspace", false, "start with an empty /workspace")
	f.StringArrayVar(&b.mounts, "mount", nil, "mount another host path: `SRC[:DST][:ro|:cow]`, at DST or at its own path; copy-on-write unless ro")
	f.StringArrayVar(&b.volumes, "volume", nil, "show a volume: `NAME:/PATH[:ro]`; its files outlive the sandbox")
	f.StringVar(&b.engine, "engine", "", "`engine` that isolates the sandbox, as crannog engines lists them or auto (default: the server's, or one that the policy accepts)")
	f.StringVar(&b.atLeast, "at-least", "", "weakest `boundary` to accept: shared-kernel, wasm-runtime, userspace-kernel or own-kernel")
	f.BoolVar(&b.containers, "containers", false, "let root inside run container engines, such as Docker, if the policy allows it")
	f.BoolVar(&b.deterministic, "deterministic", false, "run WebAssembly modules with a fixed clock and fixed random numbers: the same input gives the same output (engine wasm)")
	f.StringVar(&b.ttl, "ttl", "", "`time` after which the sandbox ends by itself")
	f.StringArrayVarP(&b.env, "env", "e", nil, "set `NAME=VALUE` inside; NAME alone copies the value from here, if it is set")
	f.StringArrayVar(&b.envFiles, "env-file", nil, "read NAME=VALUE lines from a `file`; later lines win, and -e wins over the file")
	f.StringArrayVar(&b.metadata, "metadata", nil, "label the sandbox with `NAME=VALUE`")
	b.accessFlags.add(f)
	// load reads these, because they are settings.
	f.String("memory", "", "memory, such as 512m")
	f.String("cpus", "", "CPUs, such as 1.5")
	f.String("pids", "", "processes and threads")
	f.String("disk", "", "disk space for its files, such as 1g")
	f.String("inodes", "", "files that it may create")
	f.String("shm", "", "size of /dev/shm, which counts against the memory (half of the memory)")
}

// sandboxOptions turns flags and settings into options of Create, and reports whether a directory
// of the host is mounted at /workspace. Only a local server can mount a directory, because the path
// has no meaning elsewhere.
func (a runVerbs) sandboxOptions(ctx context.Context, b *sandboxFlags, c *connection) ([]crannog.CreateOption, bool, error) {
	limits := api.Limits{
		MemoryBytes: a.config.Sandbox.MemoryBytes, CPUMillis: a.config.Sandbox.MilliCPU, PIDs: a.config.Sandbox.PIDs,
		DiskBytes: a.config.Sandbox.DiskBytes, DiskInodes: a.config.Sandbox.DiskInodes, ShmBytes: a.config.Sandbox.ShmBytes,
		CommandTimeoutSeconds: a.config.Sandbox.CommandTimeout.Seconds(),
	}
	env, err := a.assignments(b.env, b.envFiles)
	if err != nil {
		return nil, false, err
	}
	labels, err := pairsOf("--metadata", b.metadata)
	if err != nil {
		return nil, false, err
	}
	env, b.bytesEnv = splitEnv(env)
	environment, err := pairsOf("--env", env)
	if err != nil {
		return nil, false, err
	}
	b.variables = environment
	start, err := imageVerbs(a).startOption(ctx, b, c)
	if err != nil {
		return nil, false, err
	}
	onEnd, err := b.atEnd()
	if err != nil {
		return nil, false, err
	}
	opts := []crannog.CreateOption{
		start, crannog.Limits(limits), crannog.Name(b.name),
		crannog.Metadata(labels), crannog.Env(environment), crannog.Engine(b.engine), crannog.AtLeast(b.atLeast),
	}
	if b.containers {
		opts = append(opts, crannog.Containers())
	}
	if onEnd != (api.OnEnd{}) {
		opts = append(opts, crannog.OnEnd(onEnd))
	}
	access, err := b.access()
	if err != nil {
		return nil, false, err
	}
	if access.Level == "" && access.Net != "open" && access.Policy == "" {
		// A server with other settings must not be less strict.
		access.Level = a.config.Policies.Level
	}
	opts = append(opts, crannog.Access(access))
	dir, err := a.workspaceOf(b, c)
	if err != nil {
		return nil, false, err
	}
	if dir != "" {
		opts = append(opts, crannog.Workspace(dir))
	}
	tools, err := a.toolsOf(b, c)
	if err != nil {
		return nil, false, err
	}
	if len(tools) > 0 {
		opts = append(opts, crannog.Tools(tools...))
	}
	mounts, err := a.mountsOf(b, c)
	if err != nil {
		return nil, false, err
	}
	for _, m := range mounts {
		opts = append(opts, crannog.Mount(m))
	}
	volumes, err := splitVolumes(b.volumes)
	if err != nil {
		return nil, false, err
	}
	for _, m := range volumes {
		opts = append(opts, crannog.Volume(m))
	}
	return opts, dir != "", nil
}

// checkStart refuses contradictory flags about the sandbox's starting point.
func (b *sandboxFlags) checkStart() error {
	if err := b.imageFlags.check(); err != nil {
		return err
	}
	if b.engine == engine.Auto {
		b.engine = ""
	}
	switch {
	case b.atLeast != "" && !engine.Boundary(b.atLeast).Known():
		return usagef("--at-least: there is no boundary %s; use shared-kernel, wasm-runtime, userspace-kernel or own-kernel", b.atLeast)
	case b.deterministic && (b.image != "" || b.from != "" || b.template != ""):
		return usagef("--deterministic excludes --image, --from and --template")
	case b.image != "" && (b.from != "" || b.template != ""):
		return usagef("--image, --from and --template exclude each other")
	case b.image != "" && b.tools != "" && b.tools != "none":
		return usagef("--image and --tools exclude each other: the host's programs need the host's libraries")
	case b.from != "" && b.template != "":
		return usagef("--from and --template exclude each other")
	case b.from != "" && b.workspace != "":
		return usagef("--workspace and --from exclude each other: a snapshot has the workspace of its sandbox")
	case b.from != "" && len(b.mounts) > 0:
		return usagef("--mount and --from exclude each other: a snapshot has the mounts of its sandbox")
	case b.from != "" && len(b.volumes) > 0:
		return usagef("--volume and --from exclude each other: a snapshot has the volumes of its sandbox")
	case b.from != "" && b.noWorkspace:
		return usagef("--no-workspace and --from exclude each other: a snapshot has the workspace of its sandbox")
	}
	return nil
}

// startOf returns the sandbox's starting point.
func (a runVerbs) startOf(ctx context.Context, b *sandboxFlags, c *connection) (string, error) {
	if b.deterministic {
		return "wasm-deterministic", nil
	}
	if b.engine != "" && b.from == "" && b.template == "" && a.config.Sandbox.Template == sandbox.BaseTemplate {
		return "", nil // the engine decides
	}
	if b.from == "" {
		if b.noWorkspace {
			// For a snapshot as template the server would mount its directory, although
			// --no-workspace was given. The server reports other mistakes in the name.
			if _, err := c.FindSnapshot(ctx, a.config.Sandbox.Template); err == nil {
				return "", usagef("--no-workspace: %s is a snapshot, which has the workspace of its sandbox", inert(a.config.Sandbox.Template))
			}
		}
		return a.config.Sandbox.Template, nil
	}
	snap, err := c.findSnapshot(ctx, b.from)
	return snap.ID, err
}

// atEnd parses --on-end and --wake.
func (b *sandboxFlags) atEnd() (api.OnEnd, error) {
	o := api.OnEnd{Wake: b.wake}
	switch b.onEnd {
	case "", "kill":
		return o, nil
	case "pause":
		o.Pause = true
	case "pause-files":
		o.Pause, o.FilesOnly = true, true
	default:
		return o, usagef("--on-end: %q is not kill, pause or pause-files", b.onEnd)
	}
	if o.FilesOnly && o.Wake {
		return o, usagef("--wake and --on-end pause-files exclude each other: after a boot no program listens")
	}
	if b.ttl == "" {
		return o, usagef("--on-end %s needs --ttl, which sets the time", b.onEnd)
	}
	return o, nil
}

// readFile reads at most the given number of bytes of a file.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = usagef("%s is longer than %d bytes", name, limit)
	}
	return text, err
}

// pairsOf parses NAME=VALUE texts of a flag.
func pairsOf(flag string, pairs []string) (map[string]string, error) {
	m := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("%s: %q is not NAME=VALUE", flag, pair)
		}
		m[name] = value
	}
	return m, nil
}

// workspaceOf returns the directory that becomes the sandbox's workspace.
func (a runVerbs) workspaceOf(b *sandboxFlags, c *connection) (string, error) {
	switch {
	case b.noWorkspace && b.workspace != "":
		return "", usagef("--workspace and --no-workspace exclude each other")
	case b.noWorkspace, b.from != "":
		return "", nil
	case b.workspace != "" && !c.local:
		return "", usagef("--workspace needs a local server").hint("copy files with crannog cp instead")
	case b.workspace != "":
		dir, err := resolved(b.workspace)
		if err != nil {
			return "", fail("find the workspace", err)
		}
		if a.overlapsState(dir) {
			return "", usagef("--workspace: %s contains crannog's state, with the tokens of every sandbox", dir)
		}
		return dir, nil
	case !c.local:
		return "", nil
	}
	dir, err := resolved(".")
	if err != nil {
		return "", fail("find the current directory", err).hint("cd to an existing directory, or add --no-workspace")
	}
	switch {
	case a.overlapsState(dir):
		a.note("%s is not visible inside, because it contains crannog's state", dir)
		return "", nil
	case containsDir(dir, a.home.Home):
		// A home directory contains many keys and tokens, so it is mounted only on request.
		a.note("%s is not visible inside, because it contains your home directory (--workspace . shows it)", dir)
		return "", nil
	}
	return dir, nil
}

// resolved returns a path without symbolic links, so that two names of one directory are equal.
func resolved(path string) (string, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(full)
}

// overlapsState reports whether dir contains the state directory or is inside it. With such a
// workspace, a sandbox would see the tokens of other sandboxes.
func (a runVerbs) overlapsState(dir string) bool {
	state := a.config.State
	if r, err := resolved(state); err == nil {
		state = r
	}
	return containsDir(dir, state) || containsDir(state, dir)
}

// containsDir reports whether dir is home or a directory above it.
func containsDir(dir, home string) bool {
	if home == "" {
		return dir == "/"
	}
	if r, err := resolved(home); err == nil {
		home = r
	}
	rel, err := filepath.Rel(dir, home)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
