package sandbox

import (
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
)

// DefaultTag is the tag of a reference without one.
const DefaultTag = "default"

// Reference names a template: [namespace/]name[:tag], in lower case.
type Reference struct {
	Namespace string // "" if none was given
	Name      string // alias or ID
	Tag       string
}

const maxReference = 256

var (
	identifier = pattern.New(`^[a-z0-9_-]+$`)
	tagPattern = pattern.New(`^[a-z0-9_.-]+$`)
	uuid       = pattern.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// The default templates: the host's tools, and an empty one for engines that run WebAssembly
// modules.
const (
	BaseTemplate   = "base"
	ModuleTemplate = "wasm"
)

// ParseReference parses a template reference. The error is of kind Invalid.
func ParseReference(s string) (Reference, error) {
	// The error quotes the reference, so its length is checked first.
	if len(s) > maxReference {
		return Reference{}, fault.Newf(fault.Invalid, "template_reference_invalid",
			"invalid template reference: longer than %d characters", maxReference)
	}
	rest := strings.ToLower(strings.TrimSpace(s))
	ref := Reference{Tag: DefaultTag}
	if name, tag, ok := strings.Cut(rest, ":"); ok {
		// A UUID would be mistaken for the ID of a build.
		if !tagPattern.MatchString(tag) || uuid.MatchString(tag) {
			return Reference{}, invalidReference(s)
		}
		rest, ref.Tag = name, tag
	}
	if namespace, name, ok := strings.Cut(rest, "/"); ok {
		if !identifier.MatchString(namespace) {
			return Reference{}, invalidReference(s)
		}
		rest, ref.Namespace = name, namespace
	}
	if !identifier.MatchString(rest) {
		return Reference{}, invalidReference(s)
	}
	ref.Name = rest
	return ref, nil
}

// IsIdentifier reports whether s can be a namespace or a name of a template.
func IsIdentifier(s string) bool { return identifier.MatchString(s) }

func invalidReference(s string) error {
	return fault.Newf(fault.Invalid, "template_reference_invalid", "invalid template reference %q", s).
		WithHint("a reference is [namespace/]name[:tag] of a-z, 0-9, - and _")
}

// Path returns the reference without its tag.
func (r Reference) Path() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

// String returns the reference as a person would write it.
func (r Reference) String() string {
	if r.Tag == DefaultTag || r.Tag == "" {
		return r.Path()
	}
	return r.Path() + ":" + r.Tag
}

// TemplateUnknown is the error for a template that does not exist.
func TemplateUnknown(r Reference) error {
	return fault.Newf(fault.NotFound, "template_not_found", "template '%s' not found", r.Path())
}

// TagUnknown is the error for a tag that a template does not have.
func TagUnknown(r Reference) error {
	return fault.Newf(fault.NotFound, "template_tag_not_found",
		"tag '%s' does not exist for template '%s'", r.Tag, r.Path())
}
