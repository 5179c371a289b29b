package lockfile

import (
	"bytes"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of a YAML document.
const (
	// maxNodes limits the values before it is parsed.
	maxNodes = 400_000
	// maxKeys limits the keys of one value. The parser compares each with each.
	maxKeys = 16_000
)

// pnpmLock is a pnpm-lock.yaml.
type pnpmLock struct {
	LockfileVersion string                 `yaml:"lockfileVersion"`
	Packages        map[string]pnpmPackage `yaml:"packages"`
}

type pnpmPackage struct {
	Name       string `yaml:"name"`
	Version    string `yaml:"version"`
	Resolution struct {
		Integrity string `yaml:"integrity"`
	} `yaml:"resolution"`
}

// parsePNPM reads versions 5 to 9.
func parsePNPM(text []byte, c *collector) error {
	if len(text) > maxYAML {
		return errTooLarge
	}
	marks := 0
	for _, b := range text {
		if b == '\n' || b == ',' || b == '[' || b == '{' || b == '-' {
			marks++
		}
	}
	// Names and digests have dashes too, so the limit for them is larger.
	if marks > 4*maxNodes || bytes.Count(text, []byte{'\n'})+bytes.Count(text, []byte{','}) > maxNodes {
		return errTooMany
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return err
	}
	if err := checkYAML(&root, 0); err != nil {
		return err
	}
	var file pnpmLock
	if err := root.Decode(&file); err != nil {
		return err
	}
	major, _, _ := strings.Cut(file.LockfileVersion, ".")
	if major != "5" && major != "6" && major != "9" {
		return errVersion
	}
	for at, p := range file.Packages {
		name, version := pnpmKey(at, major)
		if p.Name != "" {
			name = p.Name
		}
		if p.Version != "" {
			version = p.Version
		}
		if err := c.npm(name, version, p.Resolution.Integrity); err != nil {
			return err
		}
	}
	return nil
}

// pnpmKey returns the package of a key: /NAME/VERSION_PEERS in version 5, /NAME@VERSION(PEERS) in
// version 6, and NAME@VERSION in version 9.
func pnpmKey(at, major string) (name, version string) {
	at, _, _ = strings.Cut(strings.TrimPrefix(at, "/"), "(")
	if major != "5" {
		return atVersion(at)
	}
	// Peers may have slashes too.
	parts := strings.SplitN(at, "/", 4)
	if strings.HasPrefix(at, "@") && len(parts) >= 3 {
		name, version = parts[0]+"/"+parts[1], parts[2]
	} else if len(parts) >= 2 && !strings.HasPrefix(at, "@") {
		name, version = parts[0], parts[1]
	}
	version, _, _ = strings.Cut(version, "_")
	return name, version
}

// checkYAML returns an error for a document with aliases, which can make a small document a very
// large one, and for values that are nested too deep. No tool writes either.
func checkYAML(n *yaml.Node, depth int) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return errors.New("it has aliases")
	}
	if depth > maxDepth {
		return errTooDeep
	}
	if len(n.Content) > 2*maxKeys {
		return errTooMany
	}
	for _, child := range n.Content {
		if err := checkYAML(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
