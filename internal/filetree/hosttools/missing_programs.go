package hosttools

import (
	"os"
	"path/filepath"
)

// known are programs that people install with version managers. If they are missing in a sandbox,
// another program of the same name may be used instead.
var known = []string{"python3", "python", "pip", "node", "npm", "ruby", "go", "cargo", "rustc", "java", "deno", "bun", "uv", "poetry", "pnpm", "yarn"}

// Program is a program that PATH finds on the host and that a sandbox does not have.
type Program struct {
	Name, Manager string
	Instead       string // the file that has the name in the sandbox, or ""
}

// Absent returns the known programs that the PATH in path finds in directories of version managers.
// inside is the PATH of a sandbox that sees none of them.
func (h Host) Absent(path, inside []string) []Program {
	trees, err := h.Find([]string{All})
	if err != nil || len(trees) == 0 {
		return nil
	}
	// manager returns the manager to which a directory of PATH belongs.
	manager := func(dir string) string {
		for _, d := range []string{dir, resolved(dir)} {
			for _, t := range trees {
				if within(d, t.Dir) || within(d, t.Source) {
					return t.Manager
				}
			}
		}
		return ""
	}
	managers := make([]string, len(path))
	for i, dir := range path {
		if filepath.IsAbs(dir) {
			managers[i] = manager(filepath.Clean(dir))
		}
	}
	var absent []Program
	for _, name := range known {
		for i, dir := range path {
			if !filepath.IsAbs(dir) || !executable(filepath.Join(dir, name)) {
				continue
			}
			if managers[i] != "" {
				absent = append(absent, Program{name, managers[i], lookUp(name, inside)})
			}
			break
		}
	}
	return absent
}

// lookUp returns the first program of a name in a PATH, or "".
func lookUp(name string, path []string) string {
	for _, dir := range path {
		if file := filepath.Join(dir, name); executable(file) {
			return file
		}
	}
	return ""
}

// executable reports whether a path is an executable file.
func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// resolved returns a directory without links in its path, if it exists.
func resolved(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}
