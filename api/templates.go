package api

import "time"

// CreateTemplate is the body of POST /v1/templates: a new version of a template.
type CreateTemplate struct {
	Template            string            `json:"template" minLength:"1" maxLength:"256" doc:"[namespace/]name[:tag]. The tag leads to the new version; without one, and for the first version, so does the name alone."`
	Image               string            `json:"image" minLength:"1" maxLength:"512" doc:"An image, by its name or the beginning of its digest. A caller on the server's machine has it pulled if it is not there."`
	User                string            `json:"user,omitempty" maxLength:"256" doc:"Runs commands for which no user is given; that of the image if absent."`
	WorkingDir          string            `json:"working_dir,omitempty" maxLength:"4096" doc:"Of commands; that of the image if absent."`
	Env                 map[string]string `json:"env,omitempty" doc:"Added to the variables of the image."`
	Limits              *Limits           `json:"limits,omitempty" doc:"Of a sandbox whose request has none."`
	Access              *Access           `json:"access,omitempty" doc:"What a sandbox may reach whose request names nothing. No request goes beyond it."`
	Start               []string          `json:"start,omitempty" maxItems:"256" doc:"A program, with its arguments, that runs in each sandbox from the beginning."`
	Ready               []string          `json:"ready,omitempty" maxItems:"256" doc:"A command that succeeds once that program is ready; the HEALTHCHECK of the image if absent."`
	ReadyTimeoutSeconds float64           `json:"ready_timeout_seconds,omitempty" minimum:"0" maximum:"600" doc:"Time until the program must be ready; 60 if absent."`
}

// Template is a named starting point of sandboxes, with its versions.
type Template struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Aliases   []string          `json:"aliases,omitempty"`
	Owner     string            `json:"owner,omitempty" doc:"ID of the API key whose sandboxes alone may start from it; absent if all may."`
	Host      bool              `json:"host,omitempty" doc:"It shows the programs of the server's machine instead of an image, and has no versions."`
	CreatedAt time.Time         `json:"created_at,omitzero" doc:"Absent for a template of the host."`
	Versions  []TemplateVersion `json:"versions" doc:"The oldest first."`
}

// TemplateVersion is one version of a template. It never changes.
type TemplateVersion struct {
	Version             int       `json:"version" doc:"The tag version-1 leads to version 1."`
	Tags                []string  `json:"tags,omitempty" doc:"The name without a tag means the tag default."`
	CreatedAt           time.Time `json:"created_at"`
	Image               string    `json:"image" doc:"The name by which the image was found."`
	ImageDigest         string    `json:"image_digest" doc:"What sandboxes start from, wherever the name of the image leads now."`
	Making              bool      `json:"making,omitempty" doc:"It is being made."`
	User                string    `json:"user,omitempty"`
	WorkingDir          string    `json:"working_dir,omitempty"`
	EnvNames            []string  `json:"env_names,omitempty"`
	Limits              *Limits   `json:"limits,omitempty"`
	Access              *Access   `json:"access,omitempty"`
	Start               []string  `json:"start,omitempty"`
	Ready               []string  `json:"ready,omitempty"`
	ReadyTimeoutSeconds float64   `json:"ready_timeout_seconds,omitempty"`
	HasMemory           bool      `json:"has_memory,omitempty" doc:"Sandboxes continue from memory in which the program is ready."`
	Note                string    `json:"note,omitempty" doc:"Why there is no such memory."`
}

// TemplateList is the answer of GET /v1/templates.
type TemplateList struct {
	Templates []Template `json:"templates"`
}

// TagTemplate is the body of POST /v1/templates/tags.
type TagTemplate struct {
	Template string   `json:"template" minLength:"1" maxLength:"256" doc:"The template, with a tag that leads to the version."`
	Tags     []string `json:"tags,omitempty" maxItems:"64" doc:"Tags that lead to the version from now on."`
	Aliases  []string `json:"aliases,omitempty" maxItems:"64" doc:"Further names of the template."`
}

// Commit is the body of POST /v1/sandboxes/{id}/commit.
type Commit struct {
	Image string `json:"image" minLength:"1" maxLength:"512" doc:"Name of the new image."`
}
