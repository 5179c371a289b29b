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

// needed are the kernel's modules that a machine needs, unless they are in its kernel.
var needed = []string{"virtio_mmio", "virtio_console", "virtio_blk", "virtio_net", "erofs", "overlay"}

// first is loaded before the others where it is a module. libcrc32c asks the kernel for its algorithm
// without naming it as a dependency.
const first = "crc32c_generic"

// modules are the modules of one kernel.
type modules struct {
	found   map[string]string // paths by name
	builtin map[string]bool
}

// nameOf returns the name of a module, in which the kernel does not tell - from _.
func nameOf(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// findModules finds the modules of a kernel: beside it, or in the directory in which Debian's packages
// have them, at the kernel's own root or at this host's.
func findModules(kernel string) (modules, error) {
	m := modules{found: map[string]string{}, builtin: map[string]bool{}}
	dir := filepath.Dir(kernel)
	beside, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return m, err
	}
	for _, path := range beside {
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
		return m, fmt.Errorf("no modules (*.ko) of the kernel %s: neither beside it nor in lib/modules/%s", kernel, version)
	}
	return m, nil
}

// ordered returns the paths of the needed modules, each after those that it depends on.
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
				return fmt.Errorf("%w, which %s needs", err, name)
			}
		}
		paths = append(paths, path)
		return nil
	}
	names := needed
	if m.found[first] != "" {
		names = append([]string{first}, needed...)
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
		return nil, errors.New("it is no module of a kernel")
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
