// Package lockfile owns the reading of lockfiles: it finds them in a workspace, and collects which
// versions of which packages they name, with which digests.
package lockfile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/packages"
)

// Limits of a set. A lockfile may come from anywhere, and its set is stored and sent to the egress
// gateway.
const (
	// MaxSize is the maximum size of a set as JSON. A message to the gateway has 8 MiB, also for
	// the policy and its secrets.
	MaxSize = 4 << 20
	// maxEntries limits what is collected before the set is made.
	maxEntries = 200_000
	// maxDigests limits the digests of one version. Large Python projects publish some hundred
	// files of a version.
	maxDigests = 2000
	// maxSkipped limits how many reasons a set has.
	maxSkipped = 16
	maxReason  = 200
	maxField   = 256
)

// Set is what the lockfiles of a workspace name. It never changes.
type Set struct {
	// Entries are sorted, and there is one for each version.
	Entries []Entry `json:"entries,omitempty"`
	// Files is the number of lockfiles that were read.
	Files int `json:"files,omitempty"`
	// Skipped are reasons why a part of the workspace is not in the set.
	Skipped []Skipped `json:"skipped,omitempty"`
	// NoWorkspace is set if the sandbox has no workspace on the host.
	NoWorkspace bool `json:"no_workspace,omitempty"`
}

// Entry is one version of a package.
type Entry struct {
	Ecosystem packages.Ecosystem `json:"ecosystem"`
	// Name is normalised, and Version too. The version of a go.mod ends with /go.mod, as in go.sum.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digests are in the format of packages.Digest.String.
	Digests []string `json:"digests"`
}

// Skipped is the reason why a lockfile, or some of its entries, are not in the set.
type Skipped struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// String returns the reason with its file.
func (s Skipped) String() string { return s.File + ": " + s.Reason }

// key identifies a version.
type key struct {
	ecosystem     packages.Ecosystem
	name, version string
}

// collector collects entries of lockfiles.
type collector struct {
	entries map[key]map[string]bool
	total   int
	// without counts the entries of the file that have no usable digest.
	without int
	// includes are the files to which the file refers, as it names them.
	includes []string
	skipped  []Skipped
	files    int
}

func newCollector() *collector { return &collector{entries: map[key]map[string]bool{}} }

// add adds digests of a version. Digests that cannot be read are ignored. It returns errTooMany if
// there are too many.
func (c *collector) add(e packages.Ecosystem, name, version string, digests ...packages.Digest) error {
	digests = slices.DeleteFunc(digests, func(d packages.Digest) bool { return d.Algorithm == "" })
	if len(digests) == 0 {
		c.without++
		return nil
	}
	k := key{e, Name(e, name), Version(e, version)}
	if k.name == "" || k.version == "" || len(k.name) > maxField || len(k.version) > maxField {
		c.without++
		return nil
	}
	for _, d := range digests {
		if err := c.put(k, d.String()); err != nil {
			return err
		}
	}
	return nil
}

// put adds one digest of a version.
func (c *collector) put(k key, digest string) error {
	known := c.entries[k]
	if known == nil {
		known = map[string]bool{}
		c.entries[k] = known
	}
	if known[digest] {
		return nil
	}
	if c.total >= maxEntries || len(known) >= maxDigests {
		return errTooMany
	}
	known[digest] = true
	c.total++
	return nil
}

// skip notes why a file, or a part of it, is not in the set. The workspace chose its texts, which
// people read.
func (c *collector) skip(file, reason string) {
	if len(c.skipped) < maxSkipped {
		c.skipped = append(c.skipped, Skipped{text.Strict(file, maxReason), text.Strict(reason, maxReason)})
	}
}

// set returns the collected set. A set that is too large is an error, because a part of it would
// refuse packages of the lockfiles for no visible reason.
func (c *collector) set() (*Set, error) {
	s := &Set{Files: c.files, Skipped: c.skipped}
	for _, k := range sortedKeys(c.entries) {
		s.Entries = append(s.Entries, Entry{Ecosystem: k.ecosystem, Name: k.name, Version: k.version, Digests: sortedTexts(c.entries[k])})
	}
	_, text, err := s.Encode()
	if err != nil {
		return nil, err
	}
	if len(text) > MaxSize {
		return nil, fault.Newf(fault.Exhausted, CodeTooLarge, "the lockfiles of the workspace name %d versions, more than the egress gateway accepts", len(s.Entries)).
			WithHint("use a smaller directory as the workspace, or a policy without packages.lockfile_only")
	}
	return s, nil
}

// Encode returns the set as JSON, and the digest that identifies it.
func (s *Set) Encode() (digest string, text []byte, err error) {
	if text, err = json.Marshal(s); err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), text, nil
}

func sortedKeys(of map[key]map[string]bool) []key {
	return slices.SortedFunc(maps.Keys(of), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.ecosystem, b.ecosystem), cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
	})
}

func sortedTexts(of map[string]bool) []string { return slices.Sorted(maps.Keys(of)) }

// CodeTooLarge is the code of the error for a set that is too large.
const CodeTooLarge = "lockfiles_too_large"

// maxNotes limits how many sentences Notes returns.
const maxNotes = 4

// Notes returns sentences for people on what the set lacks.
func (s *Set) Notes() (out []string) {
	if s.Files == 0 {
		out = append(out, "the workspace has no lockfile that could be read, so packages.lockfile_only refuses every package")
	}
	for _, skipped := range s.Skipped[:min(len(s.Skipped), maxNotes)] {
		out = append(out, "not read for packages.lockfile_only: "+skipped.String())
	}
	if more := len(s.Skipped) - maxNotes; more > 0 {
		out = append(out, fmt.Sprintf("not read for packages.lockfile_only: %d further files or directories", more))
	}
	return out
}
