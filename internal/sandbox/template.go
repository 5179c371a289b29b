package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// Template is the resolved starting point of a sandbox.
type Template struct {
	ID   string // 20 of [a-z0-9], the same on every start
	Name string // the name that people use
	// Owner is the ID of the key whose sandboxes alone may use it; "" means all callers.
	Owner string
	// Image contains its files.
	Image engine.Image
	// OCI is the image from which Image was unpacked, or nil. It is for engines that take no
	// directories of this host.
	OCI *engine.OCI
	// DefaultUser is the user of processes that name none; "" is "user". DefaultDir is their
	// working directory; "" is that user's home.
	DefaultUser string
	DefaultDir  string
	// Env is set for every process; variables of the caller replace it.
	Env map[string]string
	// ImageDigest is the digest of the OCI image; "" means the host's own files.
	ImageDigest string
	// Revision identifies the programs in the template. Saved memory refers to them, and cannot be
	// restored with others.
	Revision string
	// Tools are directories of the host's version managers that are also mounted.
	Tools []hosttools.Tree
	// Limits replace the zero limits of a request.
	Limits Limits
	// Access is the access of requests that name none, and the upper limit of all requests; nil is
	// none.
	Access *Access
	// Start is the program that runs in each of its sandboxes, or nil.
	Start *Start
	// Memory is a snapshot in which that program is ready, or "".
	Memory string
	// Origin is the snapshot that is used in place of a template, or nil.
	Origin *Stored
	// Older is the number of versions by which the restored guest's checks are behind GuestKnows.
	Older int
}

// OwnMemory returns the snapshot from which a sandbox is restored if the snapshot belongs to the
// template, and was not named by the caller. Otherwise it returns "".
func (t Template) OwnMemory() string {
	if t.Origin == nil {
		return ""
	}
	return t.Memory
}

// Kinds lists the kinds of images from which a sandbox of the template can start.
func (t Template) Kinds() []engine.ImageKind {
	var kinds []engine.ImageKind
	if kind := t.Image.Kind(); kind != "" {
		kinds = append(kinds, kind)
	}
	if t.OCI != nil && !slices.Contains(kinds, engine.ImageOCI) {
		kinds = append(kinds, engine.ImageOCI)
	}
	return kinds
}

// On returns the template with an image of a kind that an engine supports, if it has one.
func (t Template) On(kinds []engine.ImageKind) Template {
	if t.OCI != nil && !slices.Contains(kinds, t.Image.Kind()) {
		t.Image = engine.Image{OCI: t.OCI, Guest: t.Image.Guest}
	}
	return t
}

// MayStart reports whether a caller may start sandboxes from a template.
func (caller Principal) MayStart(t Template) bool {
	return t.Owner == "" || caller.Local || t.Owner == caller.KeyID
}

// Start is the program of a template, which runs in each of its sandboxes from the boot on.
type Start struct {
	Command []string `json:"command"`
	// Ready is a command that is repeated until it succeeds. Without it, the program is ready as
	// soon as it runs.
	Ready []string `json:"ready,omitempty"`
	// Timeout is how long Ready may take to succeed; zero is DefaultReadyTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// DefaultReadyTimeout and MaxReadyTimeout limit how long a template's program takes to be ready.
const (
	DefaultReadyTimeout = time.Minute
	MaxReadyTimeout     = 10 * time.Minute
)

// ReadyTimeout returns how long Ready may take to succeed.
func (s *Start) ReadyTimeout() time.Duration {
	if s.Timeout == 0 {
		return DefaultReadyTimeout
	}
	return min(s.Timeout, MaxReadyTimeout)
}

// Templates finds templates.
type Templates interface {
	// Resolve finds a template by its name or ID. The error is TemplateUnknown if there is none,
	// and TagUnknown if it does not have the tag.
	Resolve(ctx context.Context, ref Reference) (Template, error)
}

// ImageTemplates finds OCI images as templates.
type ImageTemplates interface {
	// ResolveImage finds an image by its reference, such as python:3.12-slim. An image that is not
	// on this machine is pulled if mayPull is set, and is NotFound otherwise.
	ResolveImage(ctx context.Context, ref string, mayPull bool) (Template, error)
	// ResolveDigest finds the image with a digest, independent of its names. The error is
	// ImageMissing if its files are not on this machine.
	ResolveDigest(ctx context.Context, digest string) (Template, error)
	// EngineImage returns an image of an engine's own store as a template.
	EngineImage(image engine.FoundImage) Template
}

// CodeImageMissing is the code of ImageMissing.
const CodeImageMissing = "image_missing"

// ImageMissing is the error for a template or a saved state whose image has been removed from this
// machine.
func ImageMissing(digest string) error {
	return fault.Newf(fault.Conflict, CodeImageMissing, "its image with the digest %s is no longer on this machine", digest).
		WithHint("get the same image again: crannog image pull NAME@" + digest + ", or crannog image import")
}

// TemplateOf finds the template of an existing sandbox or snapshot. If it was created from an
// image, that image is used, even if the template's name now refers to another.
func TemplateOf(ctx context.Context, all Templates, id string, b Base) (Template, error) {
	if b.ImageDigest == "" {
		return all.Resolve(ctx, Reference{Name: id, Tag: DefaultTag})
	}
	images, ok := all.(ImageTemplates)
	if !ok {
		return Template{}, ImageMissing(b.ImageDigest)
	}
	t, err := images.ResolveDigest(ctx, b.ImageDigest)
	t.ID, t.DefaultUser, t.DefaultDir, t.Env, t.Start = id, b.DefaultUser, b.DefaultDir, b.Env, b.Start
	return t, err
}
