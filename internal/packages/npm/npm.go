// Package npm owns the cache's knowledge of npm's registry protocol: which request is for which
// package, and what a package's document says about its versions.
package npm

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// maxName is npm's own limit for the length of a name.
const maxName = 214

// Parse returns the meaning of a request's escaped path, and the package's name.
func Parse(escaped string) (packages.Kind, string) {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return packages.Unknown, ""
	}
	rest := strings.TrimPrefix(path, "/")
	if rest == "" || rest == "-" || strings.HasPrefix(rest, "-/") {
		return packages.Service, ""
	}
	name, file, isFile := strings.Cut(rest, "/-/")
	if !validName(name) || isFile && (file == "" || strings.Contains(file, "..")) {
		return packages.Unknown, ""
	}
	if isFile {
		return packages.OfFile, name
	}
	return packages.Document, name
}

// DocumentPath returns the path of a package's document.
func DocumentPath(name string) string {
	return "/" + strings.Replace(name, "/", "%2f", 1)
}

// validName reports whether s is a name, with or without a scope.
func validName(s string) bool {
	if len(s) > maxName {
		return false
	}
	if scope, name, ok := strings.Cut(s, "/"); ok {
		scope, isScope := strings.CutPrefix(scope, "@")
		return isScope && validPart(scope) && validPart(name)
	}
	return validPart(s)
}

func validPart(s string) bool {
	if s == "" || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~!'()*", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// installScripts are the scripts that npm runs when a package is installed.
var installScripts = []string{"preinstall", "install", "postinstall"}

type document struct {
	Name     string             `json:"name"`
	Versions map[string]version `json:"versions"`
	Time     map[string]any     `json:"time"`
}

type version struct {
	Dist struct {
		Tarball   string `json:"tarball"`
		Integrity string `json:"integrity"`
		SHA1      string `json:"shasum"`
	} `json:"dist"`
	// Scripts is an object of strings, but in some old documents it is something else.
	Scripts json.RawMessage `json:"scripts"`
}

// ReadIndex reads a package's document. name is the requested package. A document of another
// package is rejected, because a registry could otherwise have that package's digests used here.
func ReadIndex(name string, text []byte) (*packages.Index, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	if d.Name != name {
		return nil, errors.New("the document is of another package")
	}
	out := &packages.Index{Name: name, Versions: map[string]packages.Version{}, Files: map[string]string{}}
	for id, v := range d.Versions {
		digest, ok := packages.ParseIntegrity(v.Dist.Integrity)
		if !ok && v.Dist.Integrity == "" {
			digest, _ = packages.HexDigest("sha1", v.Dist.SHA1)
		}
		entry := packages.Version{Digest: digest, Scripts: scriptsOf(v.Scripts)}
		if at, isText := d.Time[id].(string); isText {
			if t, err := time.Parse(time.RFC3339, at); err == nil {
				entry.Published = t
			}
		}
		out.Versions[id] = entry
		if u, err := url.Parse(v.Dist.Tarball); err == nil {
			// If two versions have the same file, their digests must be equal.
			if other, twice := out.Files[u.Path]; twice && out.Versions[other].Digest != digest {
				return nil, errors.New("two versions have the same file")
			}
			out.Files[u.Path] = id
		}
	}
	return out, nil
}

func scriptsOf(raw json.RawMessage) (found []string) {
	var scripts map[string]any
	if json.Unmarshal(raw, &scripts) != nil {
		return nil
	}
	for _, name := range installScripts {
		if _, ok := scripts[name]; ok {
			found = append(found, name)
		}
	}
	return found
}

// Filter returns the document without the versions that keep rejects. A tag of a removed version is
// removed too, except latest, which moves to the newest remaining release, because npm does not
// install a package without it.
func Filter(text []byte, index *packages.Index, keep func(version string) bool) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	isKept := func(id string) bool { _, ok := index.Versions[id]; return ok && keep(id) }
	for _, field := range []string{"versions", "time"} {
		if err := edit(all, field, func(m map[string]json.RawMessage) {
			for id := range m {
				if _, ok := index.Versions[id]; ok && !keep(id) {
					delete(m, id)
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	err := edit(all, "dist-tags", func(tags map[string]json.RawMessage) {
		for tag, raw := range tags {
			var id string
			if json.Unmarshal(raw, &id) == nil && isKept(id) {
				continue
			}
			delete(tags, tag)
			if newest := newestRelease(index, keep); tag == "latest" && newest != "" {
				tags[tag], _ = json.Marshal(newest)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// edit applies change to an object in a field of the document.
func edit(all map[string]json.RawMessage, field string, change func(map[string]json.RawMessage)) error {
	if all[field] == nil {
		return nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(all[field], &m); err != nil {
		return err
	}
	change(m)
	raw, err := json.Marshal(m)
	all[field] = raw
	return err
}

// newestRelease returns the release that was published last. If there are only pre-releases, it
// returns the one that was published last.
func newestRelease(index *packages.Index, keep func(string) bool) string {
	best, bestTime, bestRelease := "", time.Time{}, false
	for id, v := range index.Versions {
		if !keep(id) {
			continue
		}
		release := !strings.Contains(id, "-")
		newer := v.Published.After(bestTime) || v.Published.Equal(bestTime) && id > best
		if best == "" || release && !bestRelease || release == bestRelease && newer {
			best, bestTime, bestRelease = id, v.Published, release
		}
	}
	return best
}
