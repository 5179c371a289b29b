package lockfile

import (
	"encoding/json"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// pythonFile is a file of a release.
type pythonFile struct {
	Hash string `toml:"hash"`
}

// poetryLock is a poetry.lock.
type poetryLock struct {
	Package []struct {
		Name    string       `toml:"name"`
		Version string       `toml:"version"`
		Files   []pythonFile `toml:"files"`
		Source  struct {
			Type string `toml:"type"`
		} `toml:"source"`
	} `toml:"package"`
	// Metadata has the files in versions before 2.
	Metadata struct {
		Files map[string][]pythonFile `toml:"files"`
	} `toml:"metadata"`
}

// parsePoetry reads versions 1 and 2.
func parsePoetry(text []byte, c *collector) error {
	var file poetryLock
	if err := unmarshalTOML(text, &file); err != nil {
		return err
	}
	for _, p := range file.Package {
		var digests []packages.Digest
		// Other sources are git repositories, directories and single URLs.
		if p.Source.Type == "" || p.Source.Type == "legacy" {
			digests = fileDigests(append(p.Files, file.Metadata.Files[p.Name]...))
		}
		if err := c.add(packages.PyPI, p.Name, p.Version, digests...); err != nil {
			return err
		}
	}
	return nil
}

// uvLock is a uv.lock.
type uvLock struct {
	Package []struct {
		Name    string `toml:"name"`
		Version string `toml:"version"`
		Source  struct {
			Registry string `toml:"registry"`
			Git      string `toml:"git"`
			URL      string `toml:"url"`
		} `toml:"source"`
		Sdist  pythonFile   `toml:"sdist"`
		Wheels []pythonFile `toml:"wheels"`
	} `toml:"package"`
}

// parseUV reads a uv.lock.
func parseUV(text []byte, c *collector) error {
	var file uvLock
	if err := unmarshalTOML(text, &file); err != nil {
		return err
	}
	for _, p := range file.Package {
		var digests []packages.Digest
		switch {
		case p.Source.Registry != "":
			digests = fileDigests(append(p.Wheels, p.Sdist))
		case p.Source.Git == "" && p.Source.URL == "":
			continue // a part of the project itself
		}
		if err := c.add(packages.PyPI, p.Name, p.Version, digests...); err != nil {
			return err
		}
	}
	return nil
}

// parsePipfile reads a Pipfile.lock. Each of its sections except _meta has packages.
func parsePipfile(text []byte, c *collector) error {
	if err := checkDepth(string(text), false); err != nil {
		return err
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(text, &sections); err != nil {
		return err
	}
	delete(sections, "_meta")
	for _, raw := range sections {
		var section map[string]struct {
			Version string   `json:"version"`
			Hashes  []string `json:"hashes"`
		}
		if err := json.Unmarshal(raw, &section); err != nil {
			return err
		}
		for name, p := range section {
			version, exact := strings.CutPrefix(p.Version, "==")
			var digests []packages.Digest
			for _, h := range p.Hashes {
				digests = append(digests, pythonDigest(h))
			}
			if !exact {
				digests = nil // from git, a directory or a URL
			}
			if err := c.add(packages.PyPI, name, version, digests...); err != nil {
				return err
			}
		}
	}
	return nil
}

func fileDigests(files []pythonFile) (out []packages.Digest) {
	for _, f := range files {
		out = append(out, pythonDigest(f.Hash))
	}
	return out
}

// pythonDigest reads ALGORITHM:HEX. It returns the zero Digest for an unknown or weak algorithm.
func pythonDigest(s string) packages.Digest {
	algorithm, text, _ := strings.Cut(strings.TrimSpace(s), ":")
	if algorithm == "sha1" {
		return packages.Digest{} // pip does not accept it either
	}
	d, _ := packages.HexDigest(algorithm, text)
	return d
}
