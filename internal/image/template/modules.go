package template

import (
	"fmt"
	"maps"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

// moduleFiles are the files of ownFiles that a root without programs needs.
var moduleFiles = []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/timezone"}

// moduleDirs are the directories of ownDirs that such a root needs.
var moduleDirs = []string{
	"/.crannog", "/dev", "/etc", "/home", "/home/user", "/proc", "/root", "/run", "/tmp", "/var", "/var/tmp", "/workspace",
}

// resolveModules resolves the templates for WebAssembly modules.
func (h *Host) resolveModules(ref sandbox.Reference) (sandbox.Template, error) {
	for _, name := range []string{sandbox.ModuleTemplate, deterministicName} {
		if h.runner == "" || ref.Name != name && ref.Name != templateID(name) {
			continue
		}
		if ref.Tag != "" && ref.Tag != "default" {
			return sandbox.Template{}, sandbox.TagUnknown(ref)
		}
		image, err := h.moduleImage()
		if err != nil {
			return sandbox.Template{}, err
		}
		view := *image.HostView
		view.Runner = &engine.Runner{Path: RunnerTarget, JavaScript: JavaScriptTarget, Deterministic: name == deterministicName}
		image.HostView = &view
		return sandbox.Template{ID: templateID(name), Name: name, Image: image}, nil
	}
	return sandbox.Template{}, sandbox.TemplateUnknown(ref)
}

// moduleImage returns a root that shows only the guest, the runner and QuickJS of the host. It is
// created once per server.
func (h *Host) moduleImage() (engine.Image, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.modules != nil {
		return *h.modules, nil
	}
	p := &plan{dirs: maps.Clone(ownDirs), files: maps.Clone(ownFiles), links: map[string]string{}}
	keep(p.dirs, moduleDirs)
	keep(p.files, moduleFiles)
	for target, source := range map[string]string{GuestTarget: h.guest, RunnerTarget: h.runner, JavaScriptTarget: h.quickjs} {
		p.binds = append(p.binds, engine.Bind{Source: source, Target: target})
		p.files[target] = file{mode: 0o555}
	}
	dir, err := h.materialize("wasm", p)
	if err != nil {
		return engine.Image{}, fmt.Errorf("template for WebAssembly: %w", err)
	}
	image := engine.ViewOf(dir, GuestTarget, p.binds...)
	h.modules = &image
	return image, nil
}

// keep removes all keys from a map except the given ones.
func keep[T any](m map[string]T, keys []string) {
	known := map[string]bool{}
	for _, key := range keys {
		known[key] = true
	}
	maps.DeleteFunc(m, func(key string, _ T) bool { return !known[key] })
}
