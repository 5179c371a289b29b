package cli

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// caller is the environment in which crannog was called.
type caller struct {
	vars []string // "name=value"
	home config.Env
	etc  string // where the host's time zone is set; "" is /etc
}

// variable returns one of the caller's environment variables, or "".
func (c *caller) variable(name string) string {
	value, _ := c.lookUp(name)
	return value
}

// lookUp returns one of the caller's environment variables, and whether it is set.
func (c *caller) lookUp(name string) (string, bool) {
	for _, pair := range slices.Backward(c.vars) {
		if n, v, ok := strings.Cut(pair, "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}

// environment returns the default variables of a command inside: locale, time zone, terminal and
// PATH. The caller's other variables are not passed, because many of them are keys and tokens.
func (c *caller) environment(user string, info api.Sandbox, tty bool) []string {
	var env []string
	if info.ImageDigest == "" {
		// An image sets its own PATH.
		env = append(env, "PATH="+identity.SearchPath(homeOf(user), insidePath(c.variable("PATH"), info.Tools)))
	}
	for _, pair := range c.vars {
		name, _, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
		case name == "LANG", name == "TZ", strings.HasPrefix(name, "LC_"), name == "TERM" && tty:
			env = append(env, pair)
		}
	}
	if _, set := c.lookUp("TZ"); !set {
		if zone := c.timeZone(); zone != "" {
			env = append(env, "TZ="+zone)
		}
	}
	return env
}

// homeOf returns the home directory of a user inside: that of the default user for "", and "" for
// an unknown account.
func homeOf(user string) string {
	switch user {
	case "", "user":
		return homeInside
	case "root":
		return "/root"
	}
	return ""
}

// insidePath returns the entries of the caller's PATH that also exist inside, and those of mounted
// tools.
func insidePath(path string, tools []api.Tool) string {
	var dirs []string
	list := filepath.SplitList(path)
	for _, t := range tools {
		list = append(list, t.Bin...)
	}
	for _, dir := range append(list, filepath.SplitList(guest.DefaultPath)...) {
		if len(tools) > 0 && filepath.IsAbs(dir) {
			if real, ok := shownDir(filepath.Clean(dir), tools); ok && !slices.Contains(dirs, real) {
				dirs = append(dirs, real)
				continue
			}
		}
		inside := dir == "/bin" || dir == "/sbin" || strings.HasPrefix(dir, "/usr/") || strings.HasPrefix(dir, "/bin/") || strings.HasPrefix(dir, "/sbin/") || dir == guest.OwnPrograms
		if inside && filepath.Clean(dir) == dir && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// splitEnv separates variables that are UTF-8 from the others.
func splitEnv(env []string) (text, bytes []string) {
	for _, pair := range env {
		if utf8.ValidString(pair) {
			text = append(text, pair)
		} else {
			bytes = append(bytes, pair)
		}
	}
	return text, bytes
}

// assignments parses -e and --env-file as docker does: later values take precedence, and -e over
// files. A name without a value is copied from the caller's environment if it is set there, because
// the user requested it by name.
func (c *caller) assignments(pairs, files []string) ([]string, error) {
	var all, env []string
	for _, file := range files {
		lines, err := readEnvFile(file)
		if err != nil {
			return nil, fail("read "+file, err)
		}
		all = append(all, lines...)
	}
	for _, pair := range append(all, pairs...) {
		name, _, assigned := strings.Cut(pair, "=")
		if name == "" || strings.ContainsAny(name, " \t\x00") {
			return nil, usagef("%q is not NAME=VALUE", pair)
		}
		env = slices.DeleteFunc(env, func(earlier string) bool { return strings.HasPrefix(earlier, name+"=") })
		if !assigned {
			value, set := c.lookUp(name)
			if !set {
				continue
			}
			pair = name + "=" + value
		}
		env = append(env, pair)
	}
	return env, nil
}

// readEnvFile reads the lines of a file, without comments and empty lines.
func readEnvFile(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var pairs []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line != "" && !strings.HasPrefix(line, "#") {
			pairs = append(pairs, line)
		}
	}
	return pairs, lines.Err()
}
