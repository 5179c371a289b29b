package devcontainer

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are directories of the system. A link or a mount that replaces one would make every
// program fail.
var systemDirs = []string{"/bin", "/etc", "/lib", "/lib64", "/sbin"}

// ownDirs are directories that the sandbox itself fills.
var ownDirs = []string{"/dev", "/proc", "/sys", "/.crannog", WorkspaceInside}

// isReserved reports whether nothing may be placed at a path inside.
func isReserved(at string) bool {
	return at == "/" || at == "/usr" || slices.Contains(systemDirs, at) || isWithin(at, ownDirs)
}

// isWithin reports whether a path is one of the directories, or below one.
func isWithin(at string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") })
}

// workspace decides where the workspace is visible. The sandbox shows it at /workspace, where
// crannog diff and crannog apply find its changes; other paths are links to it.
func (p *planner) workspace() {
	folder, target, source := p.plan.Folder, p.plan.Folder, WorkspaceInside
	if text := p.config.WorkspaceMount; text != nil && *text != "" {
		m, err := parseMount(*text)
		switch {
		case err != nil:
			p.refuse("workspaceMount", err.Error())
			return
		case m.Type != "bind":
			p.refuse("workspaceMount", "only a mount of the type bind can show the workspace")
			return
		case len(m.Other) > 0:
			p.refuse("workspaceMount", "these options have no meaning here: "+strings.Join(m.Other, ", "))
			return
		case m.ReadOnly:
			p.refuse("workspaceMount", "the workspace is copy-on-write: the files of this machine never change")
			return
		}
		shown, err := p.within(m.Source)
		if err != nil {
			p.refuse("workspaceMount", err.Error())
			return
		}
		source, target = p.insidePath(shown), m.Target
		if folder != target && !strings.HasPrefix(folder, strings.TrimSuffix(target, "/")+"/") {
			p.refuse("workspaceFolder", "it is outside the target of workspaceMount")
		}
	} else if text != nil {
		p.refuse("workspaceMount", "a workspace without files is not supported")
	}
	if target != source {
		p.link("workspaceFolder", target, source)
	}
}

// insidePath returns where the sandbox shows a file of the workspace.
func (p *planner) insidePath(name string) string {
	rel, err := filepath.Rel(p.options.Dir, name)
	if err != nil {
		return WorkspaceInside // within has returned it, so it is relative to the workspace
	}
	return path.Join(WorkspaceInside, filepath.ToSlash(rel))
}

func (p *planner) link(property, at, to string) {
	if isReserved(at) {
		p.refuse(property, "the workspace cannot be placed at "+at)
		return
	}
	p.plan.Links = append(p.plan.Links, Link{at, to})
}

// mounts sorts the mounts into those that show files of the workspace, and those that are refused.
func (p *planner) mounts() {
	for _, m := range p.config.Mounts {
		p.mount("mounts ("+m.Target+")", m)
	}
}

func (p *planner) mount(property string, m Mount) {
	switch {
	case len(m.Other) > 0:
		p.refuse(property, "these options have no meaning here: "+strings.Join(m.Other, ", "))
	case m.Type == "volume":
		p.volume(property, m)
	case m.Type != "bind":
		p.refuse(property, "mounts of the type "+m.Type+" are not supported")
	default:
		p.bind(property, m)
	}
}

func (p *planner) bind(property string, m Mount) {
	source, err := p.within(m.Source)
	if err != nil {
		p.refuse(property, err.Error()+": the files of this machine stay hidden")
		return
	}
	if _, err := os.Stat(source); err != nil {
		p.refuse(property, "its source cannot be read")
		return
	}
	if m.ReadOnly {
		if isReserved(m.Target) {
			p.refuse(property, "nothing can be mounted there")
			return
		}
		p.plan.Mounts = append(p.plan.Mounts, ReadOnlyMount{source, m.Target})
		return
	}
	p.link(property, m.Target, p.insidePath(source))
}
