// Package catalog owns the templates that callers create from images: their names, tags, aliases
// and versions. A version refers to its image by digest, so that a template does not change when a
// name is moved to another image.
package catalog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Template is a name for the files and settings that sandboxes start from, with all its versions.
type Template struct {
	ID      string // 20 characters of a-z and 0-9
	Name    string // [namespace/]name
	Aliases []string
	Owner   string // the key that created it; "" is a local caller, whose templates all callers may use
	Created time.Time
	// Host is set if it shows the programs of the host. It is never stored.
	Host bool `json:"-"`
	// Last is the highest number that a version ever had.
	Last     int
	Versions []Version      // oldest first
	Tags     map[string]int // version numbers by tag
}

// Version is an immutable version of a template.
type Version struct {
	Number  int
	Created time.Time
	Image   string // the name under which the image was found
	Digest  string // of the image
	Build   string // UUID of the build that made the version, for clients of E2B's API; or ""
	Settings
	// Memory is a snapshot in which the version's program is ready, or "". Note is the reason why
	// there is none.
	Memory, Note string
	// Maker is the process that is creating the version, or nil if the version is complete.
	Maker *sandbox.Process
}

// Settings are the settings of a version, in addition to its files.
type Settings struct {
	User   string            `json:",omitempty"`
	Dir    string            `json:",omitempty"`
	Env    map[string]string `json:",omitempty"`
	Limits sandbox.Limits
	Access *sandbox.Access `json:",omitempty"`
	Start  *sandbox.Start  `json:",omitempty"`
}

// Sandboxes creates and stores the memory of versions.
type Sandboxes interface {
	// Save starts a sandbox of the template reference, waits until the template's program is ready,
	// saves the sandbox's memory for a version, and ends the sandbox. If the engine cannot save
	// memory, the note says so.
	Save(ctx context.Context, caller sandbox.Principal, reference, version string) (memory, note string, err error)
	// Drop removes saved memory.
	Drop(ctx context.Context, memory string) error
	// Clean removes the sandbox in which a dead process was creating a version.
	Clean(ctx context.Context, version string) error
	// Sweep removes saved memory that is not needed.
	Sweep(ctx context.Context, needed func(version, memory string) bool) error
}

// Options are the directory and the dependencies of a Catalog.
type Options struct {
	Dir     string
	Library *library.Library
	Log     *slog.Logger
	// Step is called before each change, for tests in which the process dies. If it returns an
	// error, the work ends.
	Step func(name string) error
}

// Catalog holds the templates of a state directory. It is safe for concurrent use, also by several
// processes.
type Catalog struct {
	o         Options
	files     *files
	sandboxes Sandboxes
	audit     *auditlog.Log
	self      sandbox.Process
}

// Open opens the templates of a state directory. From then on, the images that they need are not
// removed.
func Open(o Options) (*Catalog, error) {
	if o.Step == nil {
		o.Step = func(string) error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{o: o}
	var err error
	if c.self, err = sandbox.ThisProcess(); err != nil {
		return nil, err
	}
	if c.files, err = openFiles(filepath.Clean(o.Dir)); err != nil {
		return nil, err
	}
	o.Library.Pin(c.digests)
	return c, nil
}

// Serve enables the catalog to create and change templates, and removes what dead processes have
// left.
func (c *Catalog) Serve(ctx context.Context, s Sandboxes, log *auditlog.Log) error {
	c.sandboxes, c.audit = s, log
	return c.repair(ctx)
}

// digests returns the digests of the images that versions need.
func (c *Catalog) digests() (map[v1.Hash]bool, error) {
	all, err := c.files.list()
	if err != nil {
		return nil, err
	}
	need := map[v1.Hash]bool{}
	for _, t := range all {
		for _, v := range t.Versions {
			if d, err := v1.NewHash(v.Digest); err == nil {
				need[d] = true
			}
		}
	}
	return need, nil
}

// version returns the version with a number, or nil.
func (t *Template) version(number int) *Version {
	i := slices.IndexFunc(t.Versions, func(v Version) bool { return v.Number == number })
	if i < 0 {
		return nil
	}
	return &t.Versions[i]
}

// tagged returns the version to which a tag refers, or nil. The tag version-N refers to version N.
func (t *Template) tagged(tag string) *Version {
	if tag == "" {
		tag = sandbox.DefaultTag
	}
	if n, ok := numberOf(tag); ok {
		return t.version(n)
	}
	return t.version(t.Tags[tag])
}

// TagsOf returns the sorted tags of a version.
func (t *Template) TagsOf(number int) (tags []string) {
	for tag, n := range t.Tags {
		if n == number {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// BuildOf returns the UUID of the build that made a version. For a version without a build, the
// UUID is derived from the template and the number, so that it never changes.
func (t *Template) BuildOf(v Version) string {
	if v.Build != "" {
		return v.Build
	}
	id := sha256.Sum256([]byte(t.key(v.Number)))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: the application defines the other bits
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// Newest returns the version that was made last, and false if none is complete.
func (t *Template) Newest() (Version, bool) {
	for _, v := range slices.Backward(t.Versions) {
		if v.Maker == nil {
			return v, true
		}
	}
	return Version{}, false
}

// Tagged returns the version that a tag leads to, and false if there is none.
func (t *Template) Tagged(tag string) (Version, bool) {
	v := t.tagged(tag)
	if v == nil {
		return Version{}, false
	}
	return *v, true
}

// matches reports whether a reference refers to the template.
func (t *Template) matches(ref sandbox.Reference) bool {
	return ref.Path() == t.Name || ref.Path() == t.ID || slices.Contains(t.Aliases, ref.Path())
}

// mayChange reports whether a caller may change a template.
func (t *Template) mayChange(caller sandbox.Principal) bool {
	return caller.Local || t.Owner != "" && t.Owner == caller.KeyID
}

// maySee reports whether a caller may see and use a template.
func (t *Template) maySee(caller sandbox.Principal) bool {
	return caller.MayStart(sandbox.Template{Owner: t.Owner})
}

// numbered is the prefix of tags that refer to a version by number.
const numbered = "version-"

// numberOf returns the number in a tag with the prefix numbered.
func numberOf(tag string) (int, bool) {
	digits, ok := strings.CutPrefix(tag, numbered)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0
}

// key identifies a version in the stored memory.
func (t *Template) key(number int) string { return t.ID + ":" + numbered + strconv.Itoa(number) }

// find returns the template to which a reference refers, if the caller may see it.
func find(all []Template, caller sandbox.Principal, ref sandbox.Reference) (Template, error) {
	for _, t := range all {
		if t.matches(ref) && t.maySee(caller) {
			return t, nil
		}
	}
	return Template{}, notFound(ref)
}

// notFound returns the error for a template that does not exist, or that the caller may not see.
func notFound(ref sandbox.Reference) error {
	return fault.Newf(fault.NotFound, "template_not_found", "template '%s' not found", ref.Path()).
		WithHint("crannog template ls lists templates, and crannog template create creates one")
}

// findToChange is like find, but the caller must also be allowed to change the template.
func findToChange(all []Template, caller sandbox.Principal, ref sandbox.Reference) (Template, error) {
	t, err := find(all, caller, ref)
	if err == nil && !t.mayChange(caller) {
		err = fault.New(fault.Denied, "local_only", "only a caller on the server's machine may change a template of the machine")
	}
	return t, err
}
