package bootfiles

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// requiredModules lists the modules that a machine needs, unless they are built into its kernel.
var requiredModules = []string{"virtio_mmio", "virtio_console", "virtio_blk", "virtio_net", "erofs", "overlay"}

// firstModule is loaded before the others, if it is a module. libcrc32c needs its algorithm but
// does not list it as a dependency.
const firstModule = "crc32c_generic"

// modules holds the modules of one kernel.
type modules struct {
	found   map[string]string // paths by name
	builtin map[string]bool
}

// nameOf returns the name of a module, in which the kernel treats - and _ as equal.
func nameOf(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// findModules finds the modules of a kernel: next to it, or in the directory where Debian's
// packages have them, below the kernel's own root or this host's.
func findModules(kernel string) (modules, error) {
	m := modules{found: map[string]string{}, builtin: map[string]bool{}}
	dir := filepath.Dir(kernel)
	files, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return m, err
	}
	for _, path := range files {
		m.found[nameOf(path)] = path
	}
	_, version, _ := strings.Cut(filepath.Base(kernel), "-")
	for _, root := range []string{filepath.Dir(dir), "/"} {
		tree := filepath.Join(root, "lib/modules", version)
		if len(m.found) > 0 || version == "" {
			break
		}
		err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".ko") && !entry.IsDir() {
				m.found[nameOf(path)] = path
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return m, err
		}
		list, err := os.ReadFile(filepath.Join(tree, "modules.builtin"))
		if err != nil {
			continue
		}
		for path := range strings.Lines(string(list)) {
			m.builtin[nameOf(strings.TrimSpace(path))] = true
		}
	}
	if len(m.found) == 0 {
		return m, fmt.Errorf("no modules (*.ko) of the kernel %s: neither next to it nor in lib/modules/%s", kernel, version)
	}
	return m, nil
}

// ordered returns the paths of the required modules, each after those that it depends on.
func (m modules) ordered() (paths []string, err error) {
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if done[name] || m.builtin[name] {
			return nil
		}
		done[name] = true
		path := m.found[name]
		if path == "" {
			return fmt.Errorf("the kernel's module %s is missing", name)
		}
		depends, err := dependencies(path)
		if err != nil {
			return fmt.Errorf("module %s: %w", path, err)
		}
		for _, d := range depends {
			if err := add(d); err != nil {
				return fmt.Errorf("%w; %s needs it", err, name)
			}
		}
		paths = append(paths, path)
		return nil
	}
	names := requiredModules
	if m.found[firstModule] != "" {
		names = append([]string{firstModule}, requiredModules...)
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// dependencies returns the names of the modules that a module needs.
func dependencies(path string) (names []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("not a kernel module")
	}
	data, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(data), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			for name := range strings.SplitSeq(list, ",") {
				names = append(names, nameOf(name))
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
