package lifecycle

import (
	"context"
	"fmt"
	"reflect"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// startsFrom returns the template or image of a request, and its name for people.
func (pl *planner) startsFrom(ctx context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Template, string, error) {
	if req.Image == "" && req.Template == "" {
		req.Template = pl.engines.template(req.Engine)
	}
	if req.Image == "" {
		ref, err := sandbox.ParseReference(req.Template)
		if err != nil {
			return sandbox.Template{}, "", err
		}
		t, err := pl.startingPoint(ctx, caller, ref)
		if err == nil && t.Image.Kind() == engine.ImageModule && len(req.Tools)+len(req.Programs) > 0 {
			err = fault.New(fault.Unsupported, "module_tools", "programs of the host do not run in a sandbox of WebAssembly modules").
				WithHint("omit the tools and programs: crannog run --tools=none")
		}
		return t, ref.String(), err
	}
	if req.Template != "" {
		return sandbox.Template{}, "", fault.New(fault.Invalid, "image_and_template", "a sandbox can start from an image or from a template, but not from both")
	}
	if len(req.Tools) > 0 {
		// The host's tools are linked with the libraries of this host, which an image does not
		// contain.
		return sandbox.Template{}, "", fault.New(fault.Unsupported, "image_tools", "programs of the host's version managers do not run in an image").
			WithHint("omit the tools: crannog run --tools=none")
	}
	images, ok := pl.templates.(sandbox.ImageTemplates)
	if !ok {
		return sandbox.Template{}, "", fault.New(fault.Unsupported, "images_unsupported", "this server does not support images")
	}
	t, err := images.ResolveImage(ctx, req.Image, false)
	if fault.KindOf(err) != fault.NotFound || !caller.OnHost() {
		return t, t.Name, err
	}
	// Other programs of the host have images in an engine's store. A client with a key must not see
	// the contents of those.
	if finder := pl.engines.imageFinder(req.Engine); finder != nil {
		found, err := finder.FindImage(ctx, req.Image)
		if fault.KindOf(err) != fault.NotFound {
			return images.EngineImage(found), req.Image, err
		}
	}
	// A pull uses this user's credentials and disk, so only this user may cause one.
	t, err = images.ResolveImage(ctx, req.Image, true)
	return t, t.Name, err
}

// startingPoint resolves a reference to a template, or to a snapshot that is used like one. If both
// have the name, which only an older version allowed, the template has precedence.
func (pl *planner) startingPoint(ctx context.Context, caller sandbox.Principal, ref sandbox.Reference) (sandbox.Template, error) {
	t, err := pl.templates.Resolve(ctx, ref)
	if err == nil && !caller.MayStart(t) {
		err = sandbox.TemplateUnknown(ref) // as if it did not exist
	}
	if err == nil || !isUnknown(err) || ref.Namespace != "" || ref.Tag != sandbox.DefaultTag {
		return t, err
	}
	n, findErr := pl.snapshots.find(ctx, caller, ref.Name)
	if isUnknown(findErr) {
		return sandbox.Template{}, err // as if there were no snapshots
	}
	if findErr != nil {
		return sandbox.Template{}, findErr
	}
	if n.FilesOnly {
		// The snapshot has no memory, so its sandbox boots like any other of its template.
		if t, err = sandbox.TemplateOf(ctx, pl.templates, n.TemplateID, n.Base); err != nil {
			return sandbox.Template{}, fmt.Errorf("template of snapshot %s: %w", n.ID, err)
		}
		t.Origin = &n
		return t, nil
	}
	return pl.fromMemory(ctx, n)
}

// fromMemory returns the template of a sandbox that starts from a snapshot with memory.
func (pl *planner) fromMemory(ctx context.Context, n sandbox.Stored) (sandbox.Template, error) {
	if err := pl.states.CheckFits(ctx, n.Engine, n.TemplateID, n.Base, n.SavedState()); err != nil {
		return sandbox.Template{}, err
	}
	b := n.Base
	return sandbox.Template{
		ID: n.TemplateID, Name: n.Template, Image: b.Image, DefaultUser: b.DefaultUser, DefaultDir: b.DefaultDir,
		Env: b.Env, Revision: b.Revision, ImageDigest: b.ImageDigest, Tools: b.Tools, Start: b.Start, Origin: &n, Older: sandbox.GuestKnows - b.Knows,
	}, nil
}

// origin returns the state from which a new sandbox's instance starts: none, or a snapshot, whose
// instance must match that of the request.
func (pl *planner) origin(r *sandbox.Row, t sandbox.Template, p *policy.Policy) (source, error) {
	n := t.Origin
	if n == nil {
		return source{}, nil
	}
	if n.FilesOnly {
		from := fromSnapshot(*n, guest.Copied)
		from.again = false
		return from, nil
	}
	snapshotPolicy, err := pl.access.Compile(n.Access)
	if err != nil {
		return source{}, err
	}
	// A copy omits denied files instead of masking them, so the same files must be denied.
	if why := r.Base.Difference(n.Base); why != "" || n.Base.Copy != "" && !reflect.DeepEqual(p.Files(), snapshotPolicy.Files()) {
		if why == "" {
			why = "the workspace was copied under other rules"
		}
		return source{}, fault.Newf(fault.Invalid, "snapshot_policy",
			"the policy masks other files than the snapshot, whose masks cannot change when its memory is restored: %s", why).
			WithHint("use the level and the file rules of the snapshot (level " + snapshotPolicy.Level() + "), or take a snapshot of files only")
	}
	r.Base.Copy = n.Base.Copy
	from := fromSnapshot(*n, guest.Copied)
	// The workspace that is added to the memory of a template is new.
	from.again = r.Workspace == n.Workspace
	return from, nil
}
