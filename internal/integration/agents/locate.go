package agents

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// Host describes the host on which programs are searched.
type Host struct {
	Home   string
	Path   []string // the directories of PATH
	Prefix string   // the directory of npm's global packages, if it was configured
}

// Installation is an installed program, and describes how to run it inside a sandbox.
type Installation struct {
	Path string   // path of the program on the host
	Show []string // files and directories of the host that the sandbox sees, in this order
	Args []string // command line inside, without the user's arguments
}

// installDirs are directories below a home directory into which installers put programs. Usually
// they are not on the PATH of a desktop session.
var installDirs = []string{".local/bin", ".npm-global/bin", ".bun/bin", "bin"}

// shown lists the host's directories that are visible in every sandbox.
var shown = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"}

// Locate finds an agent's program on a host.
func (h Host) Locate(a Agent) (Installation, error) {
	dirs := h.dirs(a)
	for _, dir := range dirs {
		path := filepath.Join(dir, a.Program)
		if !executable(path) {
			continue
		}
		return h.mount(path)
	}
	hint := "install it: " + a.Install
	if a.Install == "" {
		hint = "install it with the system's packages"
	}
	return Installation{}, fault.Newf(fault.NotFound, "agent_not_installed", "%s is not installed: there is no %s in %s",
		a.Title, a.Program, strings.Join(dirs, ", ")).WithHint(hint)
}

// dirs returns the directories to search, in order. It omits relative entries of PATH, because with
// them a repository could supply the program.
func (h Host) dirs(a Agent) []string {
	list := slices.Clone(h.Path)
	if h.Prefix != "" {
		list = append(list, filepath.Join(h.Prefix, "bin"))
	}
	if h.Home != "" {
		for _, dir := range slices.Concat(a.InstallDirs, installDirs) {
			list = append(list, filepath.Join(h.Home, dir))
		}
		// The pattern is constant and well-formed, so that Glob cannot fail.
		versions, _ := filepath.Glob(filepath.Join(h.Home, ".nvm/versions/node/*/bin"))
		slices.Reverse(versions)
		list = append(list, versions...)
	}
	var dirs []string
	for _, dir := range append(list, "/usr/local/bin", "/usr/bin") {
		if dir = filepath.Clean(dir); filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// NpmPrefix returns the prefix for global packages that the text of an .npmrc sets, or "". It
// ignores the rest of the file, which may contain tokens.
func NpmPrefix(npmrc, home string) string {
	for line := range strings.Lines(npmrc) {
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(name) != "prefix" {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		for _, short := range []string{"~/", "${HOME}/"} {
			if rest, below := strings.CutPrefix(value, short); below {
				return filepath.Join(home, rest)
			}
		}
		return value
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// mount decides which parts of the host a program needs inside: its own package or file, and its
// interpreter. It mounts as little as possible.
func (h Host) mount(path string) (Installation, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Installation{}, fault.Wrap(err, fault.NotFound, "agent_not_installed", path+" leads nowhere")
	}
	in := Installation{Path: path}
	interpreter, err := interpreterOf(real)
	if err != nil {
		return in, fault.Wrap(err, fault.Unsupported, "agent_unreadable", real+" cannot be read")
	}
	if interpreter == "node" || interpreter == "bun" {
		found, err := h.interpreter(interpreter, filepath.Dir(path))
		if err != nil {
			return in, err
		}
		in.Args = append(in.Args, in.show(found, found))
	}
	visible := real
	if tree := packageTree(real); tree != "" {
		visible = tree
	}
	if h.containsHome(visible) {
		return in, fault.Newf(fault.Unsupported, "agent_in_home", "%s is part of %s, which contains the home directory", real, visible).
			WithHint("install it in a directory of its own")
	}
	in.Args = append(in.Args, in.show(visible, real))
	return in, nil
}

// show makes a tree of the host visible inside, which is a directory that contains file or file
// itself. It returns the path of file inside.
func (in *Installation) show(tree, file string) string {
	if slices.ContainsFunc(shown, func(dir string) bool { return strings.HasPrefix(file, dir+"/") }) {
		return file
	}
	in.Show = append(in.Show, tree)
	if tree == file {
		return rootfs.ProgramPath(len(in.Show), false)
	}
	// Both are resolved paths, and tree is an ancestor of file.
	return rootfs.ProgramPath(len(in.Show), true) + strings.TrimPrefix(file, tree)
}

// interpreter finds the interpreter of a script: beside the script, or on PATH.
func (h Host) interpreter(name, beside string) (string, error) {
	for _, dir := range append([]string{beside}, h.dirs(Agent{})...) {
		path := filepath.Join(dir, name)
		if !executable(path) {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if script, err := interpreterOf(real); err != nil || script != "" {
			continue // a wrapper script, which needs further files inside
		}
		return real, nil
	}
	return "", fault.Newf(fault.NotFound, "interpreter_not_installed", "the program needs %s, which is not on the PATH", name).
		WithHint("install " + name + ", or put its directory on the PATH")
}

// interpreterOf returns the name of the program in a script's first line, or "" for a binary.
func interpreterOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	rest, script := bytes.CutPrefix(line, []byte("#!"))
	if !script {
		return "", nil
	}
	words := strings.Fields(string(rest))
	for len(words) > 1 && (filepath.Base(words[0]) == "env" || strings.HasPrefix(words[0], "-")) {
		words = words[1:] // env -S node --flag
	}
	if len(words) == 0 {
		return "", nil
	}
	return filepath.Base(words[0]), nil
}

// modules is the name of the directories in which npm installs packages.
const modules = "node_modules"

// packageTree returns the directory with an npm package and all its dependencies. It returns "" for
// a file that belongs to no package.
func packageTree(path string) string {
	parts := strings.Split(path, "/")
	at := slices.Index(parts, modules)
	if at < 0 || at+2 >= len(parts) {
		return ""
	}
	root, end := strings.Join(parts[:at+1], "/"), at+2
	if strings.HasPrefix(parts[at+1], "@") {
		end++
	}
	if end >= len(parts) {
		return root
	}
	pkg := strings.Join(parts[:end], "/")
	// The dependencies of a global package are below it, and its siblings are other packages. In a
	// separate tree the dependencies are its siblings.
	nested, err := os.Stat(filepath.Join(pkg, modules))
	global := at > 0 && parts[at-1] == "lib"
	switch {
	case strings.HasPrefix(parts[at+1], "."): // pnpm's store
		return root
	case global, err == nil && nested.IsDir() && !hasLock(root):
		return pkg
	}
	return root
}

// hasLock reports whether npm installed all packages of a tree at once. Then dependencies are
// siblings of the packages that need them.
func hasLock(root string) bool {
	_, err := os.Stat(filepath.Join(root, ".package-lock.json"))
	return !errors.Is(err, fs.ErrNotExist)
}

// containsHome reports whether a directory is the home directory or contains it. Such a directory
// must not be mounted, because the program inside could read the user's keys.
func (h Host) containsHome(dir string) bool {
	if h.Home == "" {
		return false
	}
	home := h.Home
	if resolved, err := filepath.EvalSymlinks(home); err == nil {
		home = resolved
	}
	rel, err := filepath.Rel(dir, home)
	return err != nil || filepath.IsLocal(rel)
}
