package devcontainer

import (
	"slices"

	"github.com/crannog/crannog/internal/host/pattern"
)

// VolumeMount shows a volume of this development container.
type VolumeMount struct {
	Name     string `json:"name"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// volumeSource are the names that a file may give its volumes. With the prefix they are names of
// volumes.
var volumeSource = pattern.New(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,39}$`)

// volume plans a volume. Its name contains the configuration's ID: the file of a repository would
// otherwise open the volumes of other projects by their names.
func (p *planner) volume(property string, m Mount) {
	switch {
	case m.Source == "":
		p.refuse(property, "a volume without a name is not supported; the sandbox's own files stay until it is removed")
	case !volumeSource.MatchString(m.Source):
		p.refuse(property, "the name of a volume has at most 40 letters, digits, _, . and -, and begins with a letter or digit")
	case isReserved(m.Target), isWithin(m.Target, systemDirs):
		p.refuse(property, "no volume can be mounted there")
	case slices.ContainsFunc(p.plan.Volumes, func(v VolumeMount) bool { return v.Target == m.Target }):
		p.refuse(property, "another volume is mounted there")
	default:
		p.plan.Volumes = append(p.plan.Volumes, VolumeMount{"dev-" + p.plan.ID[40:] + "-" + m.Source, m.Target, m.ReadOnly})
	}
}
