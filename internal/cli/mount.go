package cli

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/api"
)

// splitMount parses SRC[:DST][:ro|:cow].
func splitMount(text string) (api.Mount, error) {
	m := api.Mount{Source: text}
	if strings.HasPrefix(text, ":") {
		return m, usagef("--mount: %q is not SRC[:DST][:ro|:cow], with an absolute DST", text)
	}
	if i := strings.LastIndexByte(text, ':'); i > 0 {
		switch mode := text[i+1:]; mode {
		case "ro", "cow":
			m.Source, m.ReadOnly = text[:i], mode == "ro"
		case "rw":
			return m, usagef("--mount: %q: a sandbox cannot write to the host's files", text).
				hint("omit :rw: changes stay inside, and crannog diff and export show them")
		}
	}
	// A path inside is absolute, so a colon within the source needs no escape unless a slash
	// follows it.
	if i := strings.LastIndex(m.Source, ":/"); i > 0 {
		m.Source, m.Target = m.Source[:i], m.Source[i+1:]
	} else if i := strings.LastIndexByte(m.Source, ':'); i > 0 && !strings.Contains(m.Source[i:], "/") {
		return m, usagef("--mount: %q is not SRC[:DST][:ro|:cow], with an absolute DST", text)
	}
	if m.Source == "" || m.Target != "" && path.Clean(m.Target) != strings.TrimSuffix(m.Target, "/") {
		return m, usagef("--mount: %q is not SRC[:DST][:ro|:cow], with an absolute DST", text)
	}
	if len(m.Target) > 1 {
		m.Target = strings.TrimSuffix(m.Target, "/")
	}
	return m, nil
}

// splitMounts parses the values of --mount.
func splitMounts(list []string) ([]api.Mount, error) {
	var out []api.Mount
	for _, text := range list {
		m, err := splitMount(text)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// mountsOf returns the mounts that flags request. Like the workspace, mounts need a server on this
// machine.
func (a runVerbs) mountsOf(b *sandboxFlags, c *connection) ([]api.Mount, error) {
	list, err := splitMounts(b.mounts)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	for i, m := range list {
		if !c.local {
			// Paths are on this machine, while names are defined by the server.
			if strings.Contains(m.Source, "/") || m.Target == "" {
				return nil, usagef("--mount: paths need a local server").
					hint("mount a directory that the server shares by its name: --mount NAME:/DST; crannog cp copies files")
			}
			list[i].Name, list[i].Source = m.Source, ""
			continue
		}
		real, err := resolved(m.Source)
		if err != nil {
			return nil, fail("find the directory of --mount", err)
		}
		if a.overlapsState(real) {
			return nil, usagef("--mount: %s contains crannog's state, with the tokens of every sandbox", inert(real))
		}
		// Inside, the directory appears at the path as the user typed it, because other files refer
		// to it by that path.
		if list[i].Source, err = filepath.Abs(m.Source); err != nil {
			return nil, fail("find the directory of --mount", err)
		}
	}
	return list, nil
}

// reportNotes prints which parts of the workspace are not visible in the sandbox, and why it runs
// on another engine than the default one.
func (b *runSandbox) reportNotes() {
	for _, note := range b.sb.Info().Notes {
		b.app.note("%s", inert(note))
	}
}
