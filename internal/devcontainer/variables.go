package devcontainer

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"path"
	"path/filepath"
	"strings"
)

// variables replaces ${...} in the strings of a configuration.
type variables struct {
	dir       string // the workspace on the host
	folder    string // the workspace inside; "" while it is not known
	id        string
	lookUp    func(string) (string, bool)
	mayRead   func(string) bool
	container bool // leave ${containerEnv:...} for the running sandbox
	refuse    func(property, reason string)
}

// ID returns the value of ${devcontainerId}: the same for each use of a configuration, as the
// specification of development containers defines it.
func ID(dir, file string) string {
	// The specification hashes the labels of the container, in this order, without spaces.
	labels, err := json.Marshal(struct {
		File   string `json:"devcontainer.config_file"`
		Folder string `json:"devcontainer.local_folder"`
	}{filepath.Join(dir, filepath.FromSlash(file)), dir})
	if err != nil {
		panic(err) // two strings always marshal
	}
	sum := sha256.Sum256(labels)
	text := new(big.Int).SetBytes(sum[:]).Text(32)
	return strings.Repeat("0", 52-len(text)) + text
}

// walk replaces the variables in a value of JSON.
func (v *variables) walk(property string, value any) any {
	switch value := value.(type) {
	case string:
		return v.expand(property, value)
	case []any:
		for i := range value {
			value[i] = v.walk(property, value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = v.walk(property, value[name])
		}
	}
	return value
}

// expand replaces the variables in a text.
func (v *variables) expand(property, text string) string {
	return replace(text, func(name string) (string, bool) { return v.value(property, name) })
}

// replace replaces each ${NAME} whose value is known. Values are not expanded again. An unknown
// variable stays as it is, as the specification has it: it may be one of the shell.
func replace(text string, value func(name string) (string, bool)) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return b.String() + "${" + rest
		}
		if known, ok := value(name); ok {
			b.WriteString(known)
			text = after
			continue
		}
		b.WriteString("${")
		text = rest
	}
}

func (v *variables) value(property, name string) (string, bool) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "localWorkspaceFolder":
		return v.dir, true
	case "localWorkspaceFolderBasename":
		return filepath.Base(v.dir), true
	case "containerWorkspaceFolder":
		return v.folder, v.folder != ""
	case "containerWorkspaceFolderBasename":
		return path.Base(v.folder), v.folder != ""
	case "devcontainerId":
		return v.id, true
	case "localEnv", "env":
		return v.local(property, rest), true
	case "containerEnv":
		if !v.container {
			v.refuse(property, "${containerEnv:...} has a meaning in remoteEnv only")
		}
	}
	return "", false
}

// local returns a variable of the host. A repository could otherwise ask for the keys in the
// user's environment, and its own commands would send them out.
func (v *variables) local(property, rest string) string {
	name, standard, _ := strings.Cut(rest, ":")
	value, set := v.lookUp(name)
	if !set {
		return standard
	}
	if !v.mayRead(name) {
		v.refuse(property, fmt.Sprintf("it reads the variable %s of this machine (--local-env %s allows that)", name, name))
		return standard
	}
	return value
}

// Inside replaces ${containerEnv:NAME} and ${containerEnv:NAME:DEFAULT} by the variables of the
// running sandbox.
func Inside(text string, lookUp func(string) (string, bool)) string {
	return replace(text, func(name string) (string, bool) {
		kind, rest, _ := strings.Cut(name, ":")
		if kind != "containerEnv" || kind == name {
			return "", false
		}
		name, standard, _ := strings.Cut(rest, ":")
		if value, set := lookUp(name); set {
			return value, true
		}
		return standard, true
	})
}
