package server

import (
	"context"
	"path/filepath"

	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/frontend/e2b"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/sandbox"
)

// makers build images and templates in sandboxes. Without an image library all fields are nil.
type makers struct {
	builds    *build.Service
	commits   *build.Commits
	templates *catalog.Catalog
	steps     *templatebuild.Service
}

// openTemplates opens the built templates of a state directory and adds them to o.Templates. The
// new o.Templates also has the trees in which builds run commands.
func openTemplates(o *Options) (*catalog.Catalog, error) {
	if o.Library == nil {
		return nil, nil
	}
	c, err := catalog.Open(catalog.Options{Dir: filepath.Join(o.StateDir, "catalog"), Library: o.Library, Log: o.Log})
	if err != nil {
		return nil, err
	}
	o.Templates = build.NewRoots(c.FollowedBy(o.Templates))
	return c, nil
}

// openMakers opens the services that build images and templates, once there are sandboxes.
func (d *Server) openMakers(ctx context.Context) (err error) {
	o := d.options
	roots, ok := o.Templates.(*build.Roots)
	if o.Library == nil || !ok {
		return nil
	}
	sandboxes := &buildSandboxes{d, roots, v1.NewCommands(d.Service, d.tap)}
	d.makers.builds, err = build.Open(ctx, build.Options{
		Dir: filepath.Join(o.StateDir, "builds"), Library: o.Library, Sandboxes: sandboxes,
		Audit: d.Service.AuditLog(), Log: o.Log,
		Signing: build.Signing{Keys: d.provenanceKeys(), Version: o.Version, Policy: d.policyOfBuilds},
	})
	if err != nil {
		return err
	}
	d.makers.commits = build.NewCommits(build.CommitOptions{
		Dir: filepath.Join(o.StateDir, "builds", "work"), Library: o.Library, Sandboxes: committed{d}, Audit: d.Service.AuditLog(),
	})
	if err := d.makers.templates.Serve(ctx, templateSandboxes{d}, d.Service.AuditLog()); err != nil {
		return err
	}
	d.makers.steps, err = templatebuild.Open(ctx, templatebuild.Options{
		Dir: filepath.Join(o.StateDir, "builds", "templates"), Library: o.Library, Builds: d.makers.builds, Sandboxes: sandboxes,
		Catalog: d.makers.templates, Templates: o.Templates, Audit: d.Service.AuditLog(), Log: o.Log,
	})
	return err
}

// policyOfBuilds returns the digest and the level of the policy of sandboxes with an access.
func (d *Server) policyOfBuilds(access sandbox.Access) (digest, level string, err error) {
	p, _, err := access.Compile(d.options.Settings)
	if err != nil {
		return "", "", err
	}
	return p.Digest(), p.Level(), nil
}

// close stops the builds that run in the background.
func (m makers) close() {
	if m.steps != nil {
		m.steps.Close()
	}
}

// forE2B returns the services for the E2B API, or nil.
func (m makers) forE2B() (e2b.UserTemplates, e2b.TemplateBuilds) {
	if m.steps == nil {
		return nil, nil
	}
	return m.templates, m.steps
}

// resources returns the services for the /v1 API, or nil. It checks each pointer, because a nil
// pointer in an interface would not be equal to nil.
func (m makers) resources() (b v1.Builds, c v1.Commits, t v1.Templates) {
	if m.builds != nil {
		b, c = m.builds, m.commits
	}
	if m.templates != nil {
		t = m.templates
	}
	return b, c, t
}

// MadeTemplates returns the IDs and names of the templates that callers have built.
func (d *Server) MadeTemplates() (list [][2]string, err error) {
	if d.makers.templates == nil {
		return nil, nil
	}
	all, err := d.makers.templates.List(sandbox.Principal{Local: true})
	for _, t := range all {
		list = append(list, [2]string{t.ID, t.Name})
	}
	return list, err
}

var _ sandbox.ImageTemplates = (*build.Roots)(nil)
