package devcontainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Limits of features: bytes of a description, and features of one configuration with all that they
// depend on.
const (
	maxDescription = 256 << 10
	maxFeatures    = 50
)

// description is a devcontainer-feature.json, as far as it has a meaning here.
type description struct {
	ID            string              `json:"id"`
	Version       string              `json:"version"`
	Options       map[string]option   `json:"options"`
	ContainerEnv  map[string]string   `json:"containerEnv"`
	InstallsAfter []string            `json:"installsAfter"`
	DependsOn     map[string]Settings `json:"dependsOn"`
	Mounts        []Mount             `json:"mounts"`
	Deprecated    bool                `json:"deprecated"`
	lifecycle
}

// option is an option that a feature has.
type option struct {
	Type    string          `json:"type"`
	Default json.RawMessage `json:"default"`
	Enum    []string        `json:"enum"`
}

// featureProperties are the properties of a description that are accepted.
var featureProperties = []string{
	"$schema", "id", "version", "name", "description", "documentationURL", "licenseURL", "keywords", "options", "containerEnv",
	"customizations", "installsAfter", "dependsOn", "legacyIds", "deprecated", "mounts", "init",
	"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand",
}

// featureRefused are properties of a description that are refused whenever they are set.
var featureRefused = map[string]string{
	"privileged":  "it asks for a privileged container; a sandbox has no privileges on this machine, and none can be granted",
	"capAdd":      "it asks for capabilities, and a sandbox grants none",
	"securityOpt": "it weakens the isolation of the container",
	"entrypoint":  "it starts a program with each container, for which sandboxes have no place; start it with postStartCommand",
}

// describe parses the description of a feature. It refuses what a sandbox cannot give.
func (p *planner) describe(name string, data []byte) (d description, err error) {
	if len(data) > maxDescription {
		return d, fault.Newf(fault.Invalid, CodeInvalid, "%s: its description is larger than %d bytes", name, maxDescription)
	}
	all, err := parse(data)
	if err != nil {
		return d, fmt.Errorf("%s: %w", name, err)
	}
	for _, property := range slices.Sorted(maps.Keys(all)) {
		value := all[property]
		reason, known := featureRefused[property]
		switch {
		case known && !empty(value) && value != false:
			p.refuse(name, property+": "+reason)
		case !known && !slices.Contains(featureProperties, property):
			p.refuse(name, property+": this property is not known")
		}
	}
	v := variables{
		dir: p.options.Dir, folder: p.plan.Folder, id: p.plan.ID, lookUp: p.options.LookUp,
		refuse:  func(property, reason string) { p.refuse(name, property+": "+reason) },
		mayRead: func(string) bool { return false },
	}
	for property, value := range all {
		if property == "mounts" || strings.HasSuffix(property, "Command") {
			all[property] = v.walk(property, value)
		}
	}
	plain, err := json.Marshal(all)
	if err == nil {
		err = json.Unmarshal(plain, &d)
	}
	if err != nil {
		return d, fault.Newf(fault.Invalid, CodeInvalid, "%s: its description has an invalid value: %v", name, err)
	}
	p.checkFeatureEnv(name, d.ContainerEnv)
	return d, nil
}

// checkFeatureEnv refuses variables that a line of a Dockerfile cannot set. They would otherwise
// become other instructions.
func (p *planner) checkFeatureEnv(feature string, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !isVariable(name) || strings.ContainsAny(env[name], "\n\r\x00") {
			p.refuse(feature, fmt.Sprintf("containerEnv: %.100q is not the name of a variable, or its value has several lines", name))
		}
	}
}

// optionVariables returns the options as variables of the installation script, sorted by name:
// those that are set, and the defaults of the others.
func (p *planner) optionVariables(feature string, d description, set Settings) []string {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(d.Options)) {
		o := d.Options[name]
		value, given := set[name]
		if !given {
			value = o.text()
		}
		switch {
		case o.Type == "boolean" && value != "true" && value != "false":
			p.refuse(feature, fmt.Sprintf("option %s: %.100q is neither true nor false", name, value))
		case len(o.Enum) > 0 && !slices.Contains(o.Enum, value):
			p.refuse(feature, fmt.Sprintf("option %s: %.100q is not one of %s", name, value, strings.Join(o.Enum, ", ")))
		}
		values[optionVariable(name)] = value
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, known := d.Options[name]; !known {
			p.refuse(feature, fmt.Sprintf("it has no option %.100q", name))
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+"="+values[name])
	}
	return list
}

// text returns the default value of an option.
func (o option) text() string {
	if text := string(bytes.TrimSpace(o.Default)); text == "true" || text == "false" {
		return text
	}
	var text string
	if json.Unmarshal(o.Default, &text) != nil || strings.ContainsRune(text, 0) {
		return ""
	}
	return text
}

// inVariable reports whether the name of a variable may contain a character.
func inVariable(c rune) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c)
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' }

// isVariable reports whether a text is the name of a variable.
func isVariable(name string) bool {
	return name != "" && !isDigit(rune(name[0])) && !strings.ContainsFunc(name, func(c rune) bool { return !inVariable(c) })
}

// optionVariable returns the name of an option's variable, as the specification of features defines
// it.
func optionVariable(name string) string {
	name = strings.Map(func(c rune) rune {
		if inVariable(c) {
			return c
		}
		return '_'
	}, name)
	if rest := strings.TrimLeftFunc(name, func(c rune) bool { return c == '_' || isDigit(c) }); rest != name {
		name = "_" + rest
	}
	return strings.ToUpper(name)
}
