package devcontainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Settings are the options of a feature as the file sets them.
type Settings map[string]string

// UnmarshalJSON accepts an object of strings and booleans, and the short forms: a version, or true.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	*s = Settings{}
	switch value := value.(type) {
	case string:
		(*s)["version"] = value
		return nil
	case bool, nil:
		return nil
	case map[string]any:
		for name, v := range value {
			text, err := optionText(v)
			if err != nil {
				return fmt.Errorf("option %s of a feature: %w", name, err)
			}
			(*s)[name] = text
		}
		return nil
	}
	return errors.New("the options of a feature are an object, a version or true")
}

func optionText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return "", errors.New("it contains a zero byte")
		}
		return v, nil
	case bool:
		return fmt.Sprint(v), nil
	}
	return "", errors.New("it is neither a text nor true or false")
}

// Request is a feature that a configuration, or another feature, asks for.
type Request struct {
	// Reference is that of an OCI artifact, such as ghcr.io/devcontainers/features/go:1.
	Reference string `json:"reference"`
	// Local is the directory of a feature of the workspace, on the host; then Reference is only
	// its name in the file.
	Local    string   `json:"local,omitempty"`
	Settings Settings `json:"options,omitempty"`
}

// features reads the features that the file asks for.
func (p *planner) features() {
	for _, ref := range slices.Sorted(maps.Keys(p.config.Features)) {
		if r, ok := p.request(ref, p.config.Features[ref]); ok {
			p.plan.Features = append(p.plan.Features, r)
		}
	}
}

// request checks the name of a feature.
func (p *planner) request(ref string, settings Settings) (r Request, ok bool) {
	property := "features (" + ref + ")"
	r = Request{Reference: ref, Settings: settings}
	switch {
	case strings.HasPrefix(ref, "./"), strings.HasPrefix(ref, "../"):
		dir, err := p.within(ref)
		if err != nil {
			p.refuse(property, err.Error())
			return r, false
		}
		r.Local = dir
	case strings.HasPrefix(ref, "https://"), strings.HasPrefix(ref, "http://"):
		p.refuse(property, "features are fetched from OCI registries only, where their digest is checked")
		return r, false
	case !strings.Contains(ref, "/") || path.Clean(ref) != ref || !isArtifactName(ref):
		p.refuse(property, "it is neither a directory such as ./feature nor a reference such as ghcr.io/owner/feature:1")
		return r, false
	}
	return r, true
}

// isArtifactName reports whether a reference has only characters that references have. It becomes a
// word of a Dockerfile, where others would have a meaning.
func isArtifactName(ref string) bool {
	return ref != "" && !strings.ContainsAny(ref[:1], "._/:@-") && !strings.ContainsFunc(ref, func(c rune) bool {
		return !inVariable(c) && !strings.ContainsRune("./:@-", c)
	})
}
