package policy

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// YAML returns the document in YAML.
func (d Document) YAML() (string, error) {
	text, err := yaml.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("policy: %w", err)
	}
	return string(text), nil
}
