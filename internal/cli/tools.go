package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// hostTools describes where version managers are installed on this machine.
func (a *app) hostTools() hosttools.Host {
	return hosttools.Host{Home: a.home.Home, Variable: a.variable, Private: []string{a.config.State}}
}

// addTools is separate from the other flags, because --tools of crannog mcp selects the agent's
// tools.
func (b *sandboxFlags) addTools(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.tools, "tools", "", "mount programs of version managers in your home, copy-on-write: all, none, or `names` such as --tools=pyenv,nvm")
	f.Lookup("tools").NoOptDefVal = hosttools.All
	offerValues(cmd, "tools", append([]cobra.Completion{hosttools.All, noTools}, hosttools.Names()...))
}

// noTools is the value that mounts no version manager.
const noTools = "none"

// toolsOf returns the version managers whose programs are mounted in the sandbox. The flag takes
// precedence over the setting, and the setting over an agent's need for all.
func (a runVerbs) toolsOf(b *sandboxFlags, c *connection) ([]string, error) {
	list := first(b.tools, a.config.Sandbox.Tools)
	switch {
	case list == "" && b.agentTools:
		list = hosttools.All
	case list == "" || list == noTools:
		return nil, nil
	}
	switch {
	case b.tools != "" && !c.local:
		return nil, usagef("--tools needs a local server: the programs are this machine's")
	case b.tools == "" && (!c.local || b.from != "" || b.image != ""):
		return nil, nil // without --tools, tools that cannot be shown are omitted
	}
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// reportTools prints which programs of version managers are not available inside, and which other
// programs have the same names. With --tools it prints which of them are available.
func (b *runSandbox) reportTools() {
	a := b.app
	shown := b.sb.Info().Tools
	switch {
	case !b.local, b.flags.mcp, b.sb.Info().ImageDigest != "":
		return
	case len(shown) > 0:
		if b.flags.tools != "" {
			a.note("shown from your home, copy-on-write: %s", strings.Join(managersOf(shown), ", "))
		}
		return
	case b.flags.tools != "" && b.flags.tools != noTools:
		a.note("no programs of version managers are mounted: none are installed, or the policy allows none")
		return
	case first(b.flags.tools, a.config.Sandbox.Tools) == noTools:
		return // the user has decided by flag or setting
	}
	inside := filepath.SplitList(insidePath(a.variable("PATH"), nil))
	absent := a.hostTools().Absent(filepath.SplitList(a.variable("PATH")), inside)
	if len(absent) == 0 {
		return
	}
	var names, others []string
	for _, p := range absent[:min(len(absent), 4)] {
		names = append(names, fmt.Sprintf("%s (%s)", p.Name, p.Manager))
	}
	if len(absent) > 4 {
		names = append(names, "…")
	}
	for _, p := range absent {
		if p.Instead != "" && len(others) < 2 {
			others = append(others, p.Name+" inside is "+p.Instead)
		}
	}
	otherText := ""
	if len(others) > 0 {
		otherText = "; " + strings.Join(others, ", ")
	}
	a.note("programs of your home directory are not visible inside: %s%s (--tools mounts them, --tools=none hides this line)", strings.Join(names, ", "), otherText)
}

// managersOf returns the names of the version managers of tools.
func managersOf(tools []api.Tool) (names []string) {
	for _, t := range tools {
		if !slices.Contains(names, t.Manager) {
			names = append(names, t.Manager)
		}
	}
	return names
}

// realDir returns a directory without symbolic links, or itself.
func realDir(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// shownDir maps a directory of the caller's PATH to its path inside, if its tools are mounted.
func shownDir(dir string, tools []api.Tool) (string, bool) {
	for _, t := range tools {
		if isBelow(t.Dir, dir) {
			return dir, true
		}
	}
	// fnm and other managers put symbolic links into the PATH.
	real := realDir(dir)
	for _, t := range tools {
		rel, err := filepath.Rel(realDir(t.Dir), real)
		if err == nil && filepath.IsLocal(rel) {
			return filepath.Join(t.Dir, rel), true
		}
	}
	return "", false
}

// isBelow reports whether path is dir or a path below it.
func isBelow(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+string(os.PathSeparator))
}
