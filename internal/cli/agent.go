package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/integration/agents"
	"github.com/crannog/crannog/internal/sandbox/access"
)

// homeInside is the home directory of a sandbox's default user.
const homeInside = "/home/user"

// agentMemory is the default memory of an agent's sandbox: these programs are large, and run
// compilers and tests beside themselves.
const agentMemory = 4 << 30

// agentRun is a run of a known agent by its name, as in crannog run claude.
type agentRun struct {
	agents.Agent
	found agents.Installation
	keys  []agents.Key
}

// agentByName returns the agent that the arguments of a run name: a known name as the first
// argument, without -- before it. The agent is nil if there is none. It also returns the remaining
// arguments.
func agentByName(dash int, args []string) (*agentRun, []string) {
	if dash == 0 || len(args) == 0 {
		return nil, args
	}
	known, ok := agents.Find(args[0])
	if !ok {
		return nil, args
	}
	rest := args[1:]
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	return &agentRun{Agent: known}, rest
}

// fullScreen reports whether the agent uses the whole terminal.
func (r *agentRun) fullScreen() bool { return r != nil && len(r.Keys) > 0 }

// prepare finds the agent's program and keys, and adds the flags that it needs. All problems that
// the user can fix are reported here, before anything is started.
func (r *agentRun) prepare(ctx context.Context, a *app, c *connection, f *runFlags) error {
	switch {
	case len(r.Keys) == 0:
		r.found.Args = []string{r.Program}
		return nil
	case !c.local:
		return fail("run "+r.Name, fault.New(fault.Unsupported, "agent_local_only", "the agent's program is on this machine, but the server is on another")).
			hint("without --url and CRANNOG_URL the agent runs on this machine")
	}
	var err error
	if r.found, err = a.host().Locate(r.Agent); err != nil {
		return fail("run "+r.Name, err)
	}
	if f.net != "none" {
		if err := r.findKeys(ctx, c); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		// Flags of the command line come later and take precedence.
		f.env = append([]string{name + "=" + r.Env[name]}, f.env...)
	}
	if a.config.Sandbox.MemoryBytes == 0 {
		a.config.Sandbox.MemoryBytes = agentMemory
	}
	return nil
}

// host describes where programs are installed on this machine.
func (c *caller) host() agents.Host {
	h := agents.Host{Home: c.home.Home, Path: filepath.SplitList(c.variable("PATH")), Prefix: c.variable("NPM_CONFIG_PREFIX")}
	if h.Prefix == "" && h.Home != "" {
		// Without such a file npm installs into the prefix of node, which is on the PATH.
		text, err := os.ReadFile(filepath.Join(h.Home, ".npmrc"))
		if err == nil {
			h.Prefix = agents.NpmPrefix(string(text), h.Home)
		}
	}
	return h
}

// findKeys selects the agent's keys that are stored as secrets. Without any, it returns an error
// with the command that stores one.
func (r *agentRun) findKeys(ctx context.Context, c *connection) error {
	stored, err := c.Secrets(ctx)
	if err != nil {
		return fail("find the keys of "+r.Name, err)
	}
	isStored := map[string]bool{}
	for _, s := range stored {
		isStored[s.Name] = true
	}
	if r.keys = r.Usable(func(name string) bool { return isStored[name] }); len(r.keys) > 0 {
		return nil
	}
	var names []string
	for _, k := range r.Keys {
		names = append(names, k.Secret)
	}
	return fail("run "+r.Name, fault.Newf(fault.NotFound, "agent_key_missing", "no key for %s is stored: it needs one of %s", r.Title, strings.Join(names, " or "))).
		hint("crannog secret set " + names[0] + "   asks for the value, which is never visible in a sandbox")
}

// options returns the options of the agent's sandbox, in addition to the usual ones.
func (r *agentRun) options(a *app, f *runFlags) ([]crannog.CreateOption, error) {
	var opts []crannog.CreateOption
	if len(r.found.Show) > 0 {
		opts = append(opts, crannog.Programs(r.found.Show...))
	}
	if len(r.keys) == 0 {
		return opts, nil
	}
	access, err := f.access()
	if err != nil {
		return nil, err
	}
	unlisted := "deny" // effect for hosts that the policy does not list
	switch {
	case f.ask:
		unlisted = "ask"
	case f.net == "open":
		unlisted = "allow"
	}
	document, err := r.Preset(r.keys, unlisted)
	if err == nil && access.Policy != "" {
		// A policy of the user is complete, except for the hosts that the agent cannot work
		// without.
		if document, err = policy.Parse([]byte(access.Policy)); err == nil {
			r.Grant(&document, r.keys)
		}
	} else if access.Level == "" {
		access.Level = a.config.Policies.Level
	}
	if err != nil {
		return nil, fail("compile the policy of "+r.Name, err)
	}
	if access.Policy, err = document.YAML(); err != nil {
		return nil, fail("compile the policy of "+r.Name, err)
	}
	return append(opts, crannog.Access(access)), nil
}

// prepareFiles writes configuration files inside, so that the program does not ask for first-start
// settings.
func (r *agentRun) prepareFiles(ctx context.Context, sb *crannog.Sandbox) error {
	if r.Files == nil || len(r.keys) == 0 {
		return nil
	}
	key := r.keys[0].Secret
	files := r.Files(key, access.Placeholder(key))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := sb.FS().WithContext(ctx).WriteFile(path.Join(homeInside, name)[1:], []byte(files[name]), 0o600); err != nil {
			return fail("prepare "+r.Name, err)
		}
	}
	return nil
}

// createBranch creates a git branch in the sandbox's copy of the repository. The host's does not
// change.
func (b *runSandbox) createBranch(ctx context.Context, name string) error {
	if t := b.sb.Info().HiddenTracked; t != nil && t.Without {
		return fail("create the branch "+name, fault.Newf(fault.Conflict, "branch_failed",
			"the policy hides the git repository, because it tracks the hidden file %s", inert(t.Names[0]))).
			hint("--level standard shows the repository, including the history of hidden files; or remove these files from git")
	}
	var output strings.Builder
	git := b.sb.CommandContext(ctx, "git", "-C", b.dir, "switch", "--quiet", "-c", name)
	git.Stdout, git.Stderr = &output, &output
	if err := git.Run(); err != nil {
		text := first(strings.TrimSpace(printable(output.String())), err.Error())
		return fail("create the branch "+name, fault.Newf(fault.Conflict, "branch_failed", "git: %s", text)).
			hint("--branch needs a workspace that is the top of a git repository, with .git in it")
	}
	return nil
}

// checkBranch refuses names that git would take for a flag.
func checkBranch(f *runFlags) error {
	switch {
	case f.branch == "":
		return nil
	case strings.HasPrefix(f.branch, "-"):
		return usagef("--branch: %q is not a valid branch name", f.branch)
	case f.noWorkspace:
		return usagef("--branch and --no-workspace exclude each other")
	}
	return nil
}

// agentTable lists the known agents with their names and keys, for help.
func agentTable() string {
	var b strings.Builder
	for _, agent := range agents.All() {
		var names []string
		for _, k := range agent.Keys {
			names = append(names, k.Secret)
		}
		fmt.Fprintf(&b, "  %-9s %-12s %s\n", agent.Name, agent.Title, strings.Join(names, ", "))
	}
	return b.String()
}

// agentsHelp is the help topic about agents.
func agentsHelp() string {
	return `crannog run NAME [--] [ARG...] runs an agent that is installed on this machine in a
sandbox of its own, with the current directory copy-on-write:

` + agentTable() + `
The program and its files are visible copy-on-write; the configuration and the logins
in your home are not. The last column names the secrets that hold its key: the egress gateway
sets it on requests to the agent's own API, and it is never inside. Store it once with
crannog secret set NAME. Only the API is allowed: --allow HOST adds a host, --net dev
adds package registries and forges, --ask asks about each host. With --policy FILE the
document decides, and only the agent's API and key are added to it. --net none runs the
program without a key.

--branch NAME creates a git branch inside before the agent starts. The branch is in the
sandbox's copy of .git: the branches, the index and HEAD of the repository here do not
change. Afterwards crannog apply .git/objects .git/refs/heads applies the branch with
its commits, and crannog apply applies the changed files.

crannog run -- claude runs a program of that name like any other: only with the access
that your flags give.
`
}
