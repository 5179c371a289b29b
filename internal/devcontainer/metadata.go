package devcontainer

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// MetadataLabel is the label in which an image states properties of development containers that
// start from it: those of the features in it, and of the configuration from which it was built.
const MetadataLabel = "devcontainer.metadata"

// Limits of the label.
const (
	maxMetadata = 256 << 10
	maxEntries  = 100
)

// metadata is one entry of the label, as far as it has a meaning here.
type metadata struct {
	ID              string                    `json:"id"` // the feature that it is about
	ContainerEnv    map[string]string         `json:"containerEnv"`
	RemoteEnv       map[string]*string        `json:"remoteEnv"`
	ContainerUser   string                    `json:"containerUser"`
	RemoteUser      string                    `json:"remoteUser"`
	Mounts          []Mount                   `json:"mounts"`
	ForwardPorts    []json.RawMessage         `json:"forwardPorts"`
	PortsAttributes map[string]PortAttributes `json:"portsAttributes"`
	OtherPorts      PortAttributes            `json:"otherPortsAttributes"`
	lifecycle
}

// AddMetadata adds what an image's label asks for. The configuration has precedence, and later
// entries over earlier ones; their commands run before the configuration's. As in Make, one error
// names everything that is not supported: an image is trusted no more than the file.
func (plan *Plan) AddMetadata(o Options, image, label string) error {
	title := "the label " + MetadataLabel + " of " + image
	raw, err := entriesOf(title, label)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	p := &planner{options: o, root: root, plan: *plan}
	var list []metadata
	for i, all := range raw {
		one, err := p.entry(title, i, all)
		if err != nil {
			return err
		}
		list = append(list, one)
	}
	p.merge(list)
	if len(p.problems) > 0 {
		return fault.New(fault.Unsupported, CodeUnsupported, explain(title, p.problems)).
			WithHint("choose another image, or ignore the label with --no-image-metadata")
	}
	*plan = p.plan
	return nil
}

// entriesOf parses a label: a list of objects, or one object.
func entriesOf(title, label string) (list []map[string]any, err error) {
	if len(label) > maxMetadata {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "%s has more than %d bytes", title, maxMetadata)
	}
	if err := json.Unmarshal([]byte(label), &list); err != nil {
		var one map[string]any
		if json.Unmarshal([]byte(label), &one) != nil {
			return nil, fault.Newf(fault.Invalid, CodeInvalid, "%s is not a list of JSON objects", title)
		}
		list = []map[string]any{one}
	}
	if len(list) > maxEntries {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "%s has more than %d entries", title, maxEntries)
	}
	return list, nil
}

// entry checks and decodes one entry.
func (p *planner) entry(title string, index int, all map[string]any) (m metadata, err error) {
	name := fmt.Sprintf("entry %d", index+1)
	for _, property := range slices.Sorted(maps.Keys(all)) {
		value := all[property]
		reason, known := featureRefused[property]
		_, unused := ignored[property]
		switch {
		case known && !empty(value) && value != false:
			p.refuse(name, property+": "+reason)
		case property == "overrideCommand" && value == false:
			p.refuse(name, property+": the image's own command is not started")
		case !known && !unused && !slices.Contains(accepted, property) && property != "id" && property != "overrideCommand":
			p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%s: %.60q is ignored, because it is not known", title, property))
		}
	}
	v := variables{
		dir: p.options.Dir, folder: p.plan.Folder, id: p.plan.ID, lookUp: p.options.LookUp,
		refuse:  func(property, reason string) { p.refuse(name, property+": "+reason) },
		mayRead: func(string) bool { return false },
	}
	for property, value := range all {
		if property == "mounts" || strings.HasSuffix(property, "Env") || strings.HasSuffix(property, "Command") {
			v.container = property == "remoteEnv"
			all[property] = v.walk(property, value)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fault.Newf(fault.Invalid, CodeInvalid, "%s: %s has an invalid value: %v", title, name, err)
	}
	return m, nil
}

// merge adds the entries to the plan.
func (p *planner) merge(list []metadata) {
	env, remote := map[string]string{}, map[string]*string{}
	ports := Config{PortsAttributes: map[string]PortAttributes{}}
	var user, containerUser string
	var stages []Stage
	for i, m := range list {
		maps.Copy(env, m.ContainerEnv)
		maps.Copy(remote, m.RemoteEnv)
		maps.Copy(ports.PortsAttributes, m.PortsAttributes)
		ports.ForwardPorts = append(ports.ForwardPorts, m.ForwardPorts...)
		if m.OtherPorts != (PortAttributes{}) {
			ports.OtherPorts = m.OtherPorts
		}
		if m.RemoteUser != "" {
			user = m.RemoteUser
		}
		if m.ContainerUser != "" {
			containerUser = m.ContainerUser
		}
		// A command is known by its title, so that of each entry is another one.
		of := fmt.Sprintf("entry %d of the image", i+1)
		if m.ID != "" {
			of = m.ID + ", " + of
		}
		stages = append(stages, m.stages(of)...)
	}
	maps.Copy(env, p.plan.ContainerEnv)
	maps.Copy(remote, p.plan.RemoteEnv)
	p.plan.ContainerEnv, p.plan.RemoteEnv = env, remote
	if !p.plan.remoteUser && user != "" {
		p.plan.User = user
	} else if p.plan.User == "" {
		p.plan.User = containerUser
	}
	p.checkNames()
	p.imageMounts(list)
	given := p.plan.PortAttributes
	p.plan.PortAttributes = nil
	p.config = ports
	p.ports()
	if p.plan.PortAttributes == nil {
		p.plan.PortAttributes = given
	} else {
		maps.Copy(p.plan.PortAttributes, given)
	}
	p.plan.Stages = inStageOrder(append(stages, p.plan.Stages...))
}

// imageMounts adds the mounts of the entries. For each target the last one counts, and none where
// the configuration has its own.
func (p *planner) imageMounts(list []metadata) {
	taken := map[string]bool{}
	for _, l := range p.plan.Links {
		taken[l.At] = true
	}
	for _, m := range p.plan.Mounts {
		taken[m.Target] = true
	}
	for _, v := range p.plan.Volumes {
		taken[v.Target] = true
	}
	for i, m := range slices.Backward(list) {
		for _, mount := range slices.Backward(m.Mounts) {
			if !taken[mount.Target] {
				taken[mount.Target] = true
				p.mount(fmt.Sprintf("entry %d, mounts (%s)", i+1, mount.Target), mount)
			}
		}
	}
}
