// Package catalog owns the templates that callers make from images: their names, tags, aliases and
// versions. A version names its image by the digest, so that a name that moves changes no template.
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

// Template is a name for what sandboxes start from, with all its versions.
type Template struct {
	ID      string // 20 of [a-z0-9]
	Name    string // [namespace/]name
	Aliases []string
	Owner   string // the key that made it; "" is a local caller, whose templates all callers may use
	Created time.Time
	// Last is the number of the newest version that there ever was.
	Last     int
	Versions []Version      // the oldest first
	Tags     map[string]int // numbers of versions
}

// Version is one state of a template. It never changes once it is made.
type Version struct {
	Number  int
	Created time.Time
	Image   string // the name by which the image was found
	Digest  string // of the image
	Build   string // the UUID of the build that made it, as clients of E2B's API name it
	Settings
	// Memory is a snapshot in which the version's program is ready, or "". Note is why there is
	// none.
	Memory, Note string
	// Maker is the process that makes the version, or nil if it is made.
	Maker *sandbox.Process
}

// Settings are what a version sets beside the files.
type Settings struct {
	User   string            `json:",omitempty"`
	Dir    string            `json:",omitempty"`
	Env    map[string]string `json:",omitempty"`
	Limits sandbox.Limits
	Access *sandbox.Access `json:",omitempty"`
	Start  *sandbox.Start  `json:",omitempty"`
}

// Sandboxes makes the memory of versions, and keeps it.
type Sandboxes interface {
	// Save starts a sandbox of the template reference, in which the template's program gets ready,
	// saves its memory for a version, and ends it. If the engine cannot save memory, the note says
	// so.
	Save(ctx context.Context, who sandbox.Principal, reference, version string) (memory, note string, err error)
	// Drop removes saved memory.
	Drop(ctx context.Context, memory string) error
	// Clean removes the sandbox in which a process that died was making a version.
	Clean(ctx context.Context, version string) error
	// Sweep removes the memory that is not needed.
	Sweep(ctx context.Context, needed func(version, memory string) bool) error
}

// Options are where templates are kept and what they are made from.
type Options struct {
	Dir     string
	Library *library.Library
	Log     *slog.Logger
	// Step is called before each step that changes something, for tests in which the process dies.
	// If it returns an error, the work ends.
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

// Open opens the templates of a state directory. The images that they need are kept from then on.
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

// Serve lets the catalog make and change templates, and removes what processes that died have left.
func (c *Catalog) Serve(ctx context.Context, s Sandboxes, log *auditlog.Log) error {
	c.sandboxes, c.audit = s, log
	return c.repair(ctx)
}

// digests returns the images that versions need.
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

// tagged returns the version that a tag leads to, or nil. The tag version-N leads to version N.
func (t *Template) tagged(tag string) *Version {
	if tag == "" {
		tag = sandbox.DefaultTag
	}
	if n, ok := numberOf(tag); ok {
		return t.version(n)
	}
	return t.version(t.Tags[tag])
}

// TagsOf returns the tags of a version, in their order.
func (t *Template) TagsOf(number int) (tags []string) {
	for tag, n := range t.Tags {
		if n == number {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// BuildOf returns the UUID of the build that made a version. Versions that were made otherwise have
// one that is always the same.
func (t *Template) BuildOf(v Version) string {
	if v.Build != "" {
		return v.Build
	}
	id := sha256.Sum256([]byte(t.key(v.Number)))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8, of an application's own
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

// is reports whether a reference names the template.
func (t *Template) is(ref sandbox.Reference) bool {
	return ref.Path() == t.Name || ref.Path() == t.ID || slices.Contains(t.Aliases, ref.Path())
}

// mayChange reports whether a caller may change a template.
func (t *Template) mayChange(who sandbox.Principal) bool {
	return who.Local || t.Owner != "" && t.Owner == who.KeyID
}

// maySee reports whether a caller may see and use a template.
func (t *Template) maySee(who sandbox.Principal) bool {
	return who.MayStart(sandbox.Template{Owner: t.Owner})
}

// numbered is the beginning of the tags that stand for the version of a number.
const numbered = "version-"

// numberOf returns the number in such a tag.
func numberOf(tag string) (int, bool) {
	digits, ok := strings.CutPrefix(tag, numbered)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0
}

// key names a version in the rows of its memory.
func (t *Template) key(number int) string { return t.ID + ":" + numbered + strconv.Itoa(number) }

// find returns the template that a reference names, for a caller who may see it.
func find(all []Template, who sandbox.Principal, ref sandbox.Reference) (Template, error) {
	for _, t := range all {
		if t.is(ref) && t.maySee(who) {
			return t, nil
		}
	}
	return Template{}, unknown(ref)
}

func unknown(ref sandbox.Reference) error {
	return fault.Newf(fault.NotFound, "template_not_found", "template '%s' not found", ref.Path()).
		WithHint("crannog template ls lists templates, and crannog template create makes one")
}

// toChange is find for a caller who changes the template.
func toChange(all []Template, who sandbox.Principal, ref sandbox.Reference) (Template, error) {
	t, err := find(all, who, ref)
	if err == nil && !t.mayChange(who) {
		err = fault.New(fault.Denied, "local_only", "only a caller on the server's machine may change a template of the machine")
	}
	return t, err
}
