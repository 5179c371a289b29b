package devcontainer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Problem is a property that is not supported, with the reason.
type Problem struct {
	Property string `json:"property"`
	Reason   string `json:"reason"`
}

// refused are properties that are refused whenever they are set.
var refused = map[string]string{
	"initializeCommand": "it would run a command of the repository on this machine, outside any sandbox; run it by hand if you trust it",
	"dockerComposeFile": "a sandbox is one container, and Compose files describe several",
	"service":           "it belongs to dockerComposeFile",
	"runServices":       "it belongs to dockerComposeFile",
	"runArgs":           "arguments of docker run can ask for any privilege; --memory, --cpus and --allow set what a sandbox gets",
	"capAdd":            "a file of the repository grants no capabilities",
	"securityOpt":       "a file of the repository does not weaken the sandbox",
}

// accepted are properties that a Config has, or that need nothing done.
var accepted = []string{
	"$schema", "name", "image", "build", "dockerFile", "context", "containerEnv", "remoteEnv", "containerUser", "remoteUser",
	"workspaceFolder", "workspaceMount", "mounts", "forwardPorts", "appPort", "portsAttributes", "otherPortsAttributes", "features", "overrideFeatureInstallOrder",
	"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand",
	// All commands are waited for, and the first process inside reaps the others.
	"waitFor", "init",
	// Files are owned by the sandbox's user.
	"updateRemoteUserUID",
}

// ignored are properties that change nothing in a sandbox, with the reason for the note.
var ignored = map[string]string{
	"customizations":   "",
	"extensions":       "it is for an editor",
	"settings":         "it is for an editor",
	"devPort":          "it is for an editor",
	"userEnvProbe":     "commands get the variables of the image, containerEnv and remoteEnv, and not those of a login shell",
	"hostRequirements": "--memory, --cpus and --disk set the limits",
	"shutdownAction":   "the sandbox runs until crannog stop or crannog rm",
	"secrets":          "crannog secret stores secrets, which never enter the sandbox",
}

// inspect names the properties that are refused, and returns notes about those that are ignored.
func inspect(all map[string]any, refuse func(property, reason string)) (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		if reason, ok := refused[name]; ok {
			if !empty(value) {
				refuse(name, reason)
			}
			continue
		}
		if reason, ok := ignored[name]; ok {
			if reason != "" && !empty(value) {
				notes = append(notes, name+" is ignored: "+reason)
			}
			continue
		}
		switch {
		case name == "privileged":
			if value != false && value != nil {
				refuse(name, "a sandbox has no privileges on this machine, and none can be granted")
			}
		case name == "overrideCommand":
			if value == false {
				refuse(name, "the image's own command is not started; start the program with postStartCommand")
			}
		case !slices.Contains(accepted, name):
			refuse(name, "this property is not known")
		}
	}
	if needs, ok := all["hostRequirements"].(map[string]any); ok && needs["gpu"] != nil && needs["gpu"] != false && needs["gpu"] != "optional" {
		refuse("hostRequirements.gpu", "a sandbox has no GPU")
	}
	if build, ok := all["build"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(build)) {
			switch name {
			case "dockerfile", "context", "args", "target":
			case "cacheFrom":
				notes = append(notes, "build.cacheFrom is ignored: builds use the cache of this machine")
			case "options":
				if !empty(build[name]) {
					refuse("build.options", "options of docker build have no meaning here")
				}
			default:
				refuse("build."+name, "this property is not known")
			}
		}
	}
	return notes
}

// empty reports whether a value asks for nothing.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// unsupported returns one error that names all problems, or nil.
func unsupported(file string, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Unsupported, CodeUnsupported, explain(file, problems)).
		WithHint("remove these properties, or choose another configuration with --config NAME")
}

// explain lists problems, one in a line.
func explain(what string, problems []Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for what is not supported:", what)
	for _, p := range problems {
		fmt.Fprintf(&b, "\n- %s: %s", p.Property, p.Reason)
	}
	return b.String()
}
