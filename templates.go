package crannog

import (
	"context"
	"net/http"
	"net/url"

	"github.com/crannog/crannog/api"
)

// Templates lists the templates that the caller may use.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	var out api.TemplateList
	err := c.call(ctx, http.MethodGet, "/templates", nil, &out)
	return out.Templates, err
}

// CreateTemplate creates a version of a template, and returns when its program is ready.
func (c *Client) CreateTemplate(ctx context.Context, req api.CreateTemplate) (api.Template, error) {
	var out api.Template
	err := c.call(ctx, http.MethodPost, "/templates", req, &out)
	return out, err
}

// InspectTemplate describes a template, by its name, an alias or its ID.
func (c *Client) InspectTemplate(ctx context.Context, name string) (api.Template, error) {
	var out api.Template
	err := c.call(ctx, http.MethodGet, "/templates/inspect?"+templateQuery(name), nil, &out)
	return out, err
}

// TagTemplate assigns tags to a version of a template, and aliases to the template.
func (c *Client) TagTemplate(ctx context.Context, req api.TagTemplate) (api.Template, error) {
	var out api.Template
	err := c.call(ctx, http.MethodPost, "/templates/tags", req, &out)
	return out, err
}

// RemoveTemplate removes a template by its name or ID, one of its aliases, or one tag. A version
// whose last tag is removed is removed too. Sandboxes keep the data that they need.
func (c *Client) RemoveTemplate(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/templates?"+templateQuery(name), nil, nil)
}

func templateQuery(name string) string { return url.Values{"template": {name}}.Encode() }

// Commit creates an image from the files of a running sandbox, which must have started from an
// image.
func (s *Sandbox) Commit(ctx context.Context, image string) (api.Image, error) {
	var out api.Image
	err := s.client.call(ctx, http.MethodPost, s.path("/commit"), api.Commit{Image: image}, &out)
	return out, err
}
