package build

import (
	"context"
	"sync"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
)

// Roots are the directories in which builds run commands, in addition to the templates. While a
// command runs, its directory has an ID that only its build knows.
type Roots struct {
	others sandbox.Templates
	mu     sync.Mutex
	live   map[string]sandbox.Template
}

// NewRoots returns Roots in addition to other templates.
func NewRoots(others sandbox.Templates) *Roots {
	return &Roots{others: others, live: map[string]sandbox.Template{}}
}

// Show registers a directory as a template until forget is called. It returns the template's ID.
func (r *Roots) Show(t sandbox.Template) (id string, forget func()) {
	id = ids.New("b")
	t.ID, t.Name, t.Revision = id, "build", id
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[id] = t
	return id, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.live, id)
	}
}

// Resolve implements sandbox.Templates.
func (r *Roots) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	r.mu.Lock()
	t, ok := r.live[ref.Name]
	r.mu.Unlock()
	if ok && ref.Namespace == "" {
		return t, nil
	}
	return r.others.Resolve(ctx, ref)
}

// ResolveImage implements sandbox.ImageTemplates.
func (r *Roots) ResolveImage(ctx context.Context, ref string, mayPull bool) (sandbox.Template, error) {
	images, ok := r.others.(sandbox.ImageTemplates)
	if !ok {
		return sandbox.Template{}, fault.New(fault.Unsupported, "images_unsupported", "this service has no image store")
	}
	return images.ResolveImage(ctx, ref, mayPull)
}

// EngineImage implements sandbox.ImageTemplates.
func (r *Roots) EngineImage(image engine.FoundImage) sandbox.Template {
	images, ok := r.others.(sandbox.ImageTemplates)
	if !ok {
		return sandbox.Template{}
	}
	return images.EngineImage(image)
}

// ResolveDigest implements sandbox.ImageTemplates.
func (r *Roots) ResolveDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	images, ok := r.others.(sandbox.ImageTemplates)
	if !ok {
		return sandbox.Template{}, sandbox.ImageMissing(digest)
	}
	return images.ResolveDigest(ctx, digest)
}
