package registry

import (
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/crannog/crannog/internal/fault"
)

// Rules are an organisation's rules for registries.
type Rules struct {
	// Allow lists the permitted sources and destinations of images: a registry, such as ghcr.io, a
	// repository, or everything below a path, such as docker.io/library/*. An empty list permits
	// all.
	Allow []string
	// Mirrors maps a registry to registries that are tried before it.
	Mirrors map[string][]string
	// Insecure lists registries that may be reached without TLS, or with a certificate that no
	// trusted authority has signed.
	Insecure []string
}

// dockerHub is the name of Docker Hub in references. Its server has another name.
const dockerHub = "docker.io"

// shortName returns the name of a repository or registry as people write it, with docker.io for
// Docker Hub.
func shortName(full string) string {
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry); ok && (rest == "" || rest[0] == '/') {
		return dockerHub + rest
	}
	return full
}

// Familiar returns a reference as people write it: python:3.12 and not
// index.docker.io/library/python:3.12.
func Familiar(ref name.Reference) string {
	text := shortName(ref.Context().Name())
	text = strings.TrimPrefix(strings.TrimPrefix(text, dockerHub+"/"), "library/")
	if _, digest := ref.(name.Digest); digest {
		return text + "@" + ref.Identifier()
	}
	return text + ":" + ref.Identifier()
}

// check rejects a repository that the rules do not allow. It is called before any request.
func (r Rules) check(repo name.Repository) error {
	full := shortName(repo.Name())
	if len(r.Allow) == 0 || slices.ContainsFunc(r.Allow, func(rule string) bool { return allows(rule, full) }) {
		return nil
	}
	return fault.Newf(fault.Denied, "registry_not_allowed", "the rules of this machine allow no images from %s", full).
		WithHint("the setting image_registries allows: " + strings.Join(r.Allow, ", "))
}

// allows reports whether a rule allows a repository.
func allows(rule, repo string) bool {
	rule = shortName(rule)
	if !strings.Contains(rule, "/") {
		registry, _, _ := strings.Cut(repo, "/")
		return registry == rule
	}
	if below, ok := strings.CutSuffix(rule, "*"); ok && strings.HasSuffix(below, "/") {
		return strings.HasPrefix(repo, below)
	}
	return rule == repo
}

// insecure reports whether a registry may be reached without TLS.
func (r Rules) insecure(registry string) bool {
	return slices.Contains(r.Insecure, shortName(registry))
}

// sources returns the references under which an image may be found, in the order in which they are
// tried.
func (r Rules) sources(ref name.Reference) []name.Reference {
	var list []name.Reference
	for _, mirror := range r.Mirrors[shortName(ref.Context().RegistryStr())] {
		repo, err := name.NewRepository(mirror + "/" + ref.Context().RepositoryStr())
		if err != nil {
			continue // the settings were checked, so every mirror has a valid name
		}
		if _, digest := ref.(name.Digest); digest {
			list = append(list, repo.Digest(ref.Identifier()))
		} else {
			list = append(list, repo.Tag(ref.Identifier()))
		}
	}
	return append(list, ref)
}

// ParseList parses names that are separated by commas.
func ParseList(text string) (list []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if strings.ContainsAny(part, " =;@") || strings.Contains(strings.TrimSuffix(part, "/*"), "*") {
			return nil, fault.Newf(fault.Invalid, "registry_invalid", "%.200q is not the name of a registry or repository", part)
		}
		list = append(list, part)
	}
	return list, nil
}

// ParseMirrors parses REGISTRY=MIRROR pairs that are separated by commas.
func ParseMirrors(text string) (map[string][]string, error) {
	mirrors := map[string][]string{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		registry, mirror, ok := strings.Cut(part, "=")
		if _, err := name.NewRegistry(mirror); !ok || registry == "" || mirror == "" || err != nil {
			return nil, fault.Newf(fault.Invalid, "registry_invalid", "%.200q is not REGISTRY=MIRROR", part)
		}
		mirrors[shortName(registry)] = append(mirrors[shortName(registry)], mirror)
	}
	return mirrors, nil
}
