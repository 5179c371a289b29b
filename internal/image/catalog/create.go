package catalog

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
)

// Request describes a version to create.
type Request struct {
	Template string // [namespace/]name[:tag]
	Image    string // the image's name, or the beginning of its digest
	// Tags also refer to the version. ID is the ID of a new template, from Reserve. Build is the
	// UUID of the build that makes the version. Both may be "".
	Tags      []string
	ID, Build string
	Settings
}

// naming has the names that refer to a new version.
type naming struct {
	sandbox.Reference
	tags []string
	id   string // of the template, or ""
}

// naming parses the names of a request.
func (r Request) naming() (naming, error) {
	ref, err := parse(r.Template)
	if err != nil {
		return naming{}, err
	}
	for _, tag := range r.Tags {
		if _, err := parse("t:" + tag); err != nil {
			return naming{}, err
		}
	}
	return naming{ref, r.Tags, r.ID}, nil
}

// Reserve checks that a caller may create a version of the template with a name and tags. It
// returns the template's ID, which is a new one if there is no such template.
func (c *Catalog) Reserve(caller sandbox.Principal, name string, tags []string) (id string, ref sandbox.Reference, err error) {
	if err := caller.Check(); err != nil {
		return "", ref, err
	}
	n, err := Request{Template: name, Tags: tags}.naming()
	if err != nil {
		return "", ref, err
	}
	all, err := c.files.list()
	if err != nil {
		return "", ref, err
	}
	t, err := target(all, caller, n)
	return t.ID, n.Reference, err
}

// Create creates a version of a template, and the template if it does not exist. Afterwards the tag
// of the reference refers to the version. Without a tag, or for the first version, the plain name
// refers to it as well.
func (c *Catalog) Create(ctx context.Context, caller sandbox.Principal, req Request) (Template, error) {
	ctx, action := c.audit.Begin(ctx, caller.Actor(), "template.create", req.Template)
	t, err := c.create(ctx, caller, req)
	return t, action.Finish(context.WithoutCancel(ctx), err)
}

// create creates a version, without an audit entry.
func (c *Catalog) create(ctx context.Context, caller sandbox.Principal, req Request) (Template, error) {
	if err := caller.Check(); err != nil {
		return Template{}, err
	}
	ref, err := req.naming()
	if err != nil {
		return Template{}, err
	}
	if err := req.Settings.check(); err != nil {
		return Template{}, err
	}
	if !caller.OnHost() && req.Settings.namesHost() {
		return Template{}, fault.New(fault.Denied, "local_only", "only a local caller may create a template that binds files or variables of the server's machine").
			WithHint("bind a secret by its name")
	}
	// This comes before the image is pulled.
	if all, err := c.files.list(); err != nil {
		return Template{}, err
	} else if _, err := target(all, caller, ref); err != nil {
		return Template{}, err
	}
	if _, err := c.o.Library.ResolveImage(ctx, req.Image, caller.OnHost()); err != nil {
		return Template{}, err
	}
	img, err := c.o.Library.Inspect(req.Image)
	if err != nil {
		return Template{}, err
	}
	v := Version{Created: now(), Image: img.Name, Digest: img.Digest.String(), Build: req.Build, Settings: req.Settings}
	if v.Start == nil {
		v.Start = labelled(img.Config.Labels)
	}
	if v.Start != nil {
		v.Maker = &c.self
		if len(v.Start.Ready) == 0 {
			start := *v.Start
			start.Ready = healthcheck(img.Config.Healthcheck)
			v.Start = &start
		}
	}
	t, err := c.begin(ctx, caller, ref, img.Digest, v)
	if err != nil || v.Start == nil {
		return t, err
	}
	number := t.Last
	memory, note, err := c.sandboxes.Save(ctx, caller, t.key(number), t.key(number))
	if err == nil {
		t, err = c.finish(ctx, t.ID, ref, number, memory, note)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return Template{}, errors.Join(err, c.abandon(ctx, t.ID, number, memory))
	}
	return t, nil
}

// StartLabel is the label of an image with the shell command of the program that runs in each sandbox
// of its templates. So that an image can be built and used without further settings, a template uses
// it unless its creator names another program.
const StartLabel = "crannog.start"

// labelled returns the program that an image's labels name, or nil.
func labelled(labels map[string]string) *sandbox.Start {
	line := labels[StartLabel]
	if line == "" {
		return nil
	}
	return &sandbox.Start{Command: []string{"/bin/sh", "-c", line}}
}

// healthcheck returns the command of a HEALTHCHECK, which succeeds once the image's program is
// ready.
func healthcheck(h *v1.HealthConfig) []string {
	switch {
	case h == nil || len(h.Test) < 2:
		return nil
	case h.Test[0] == "CMD":
		return h.Test[1:]
	case h.Test[0] == "CMD-SHELL":
		return []string{"/bin/sh", "-c", h.Test[1]}
	}
	return nil
}

// now returns the current time in the form that is stored.
func now() time.Time { return time.Now().UTC().Round(0) }

// target returns the template of a reference, or a new one.
func target(all []Template, caller sandbox.Principal, ref naming) (Template, error) {
	for _, t := range all {
		if !t.matches(ref.Reference) {
			continue
		}
		if !t.maySee(caller) || ref.id != "" && ref.id != t.ID {
			return Template{}, nameTaken(ref.Path())
		}
		return findToChange(all, caller, ref.Reference)
	}
	if err := checkHostName(ref.Path(), caller.KeyID); err != nil {
		return Template{}, err
	}
	id := ref.id
	if id == "" {
		id = ids.New("t")
	}
	return Template{ID: id, Name: ref.Path(), Owner: caller.KeyID, Created: now(), Tags: map[string]int{}}, nil
}

// begin stores a version. A complete version gets its tags. No image is removed during this.
func (c *Catalog) begin(ctx context.Context, caller sandbox.Principal, ref naming, digest v1.Hash, v Version) (t Template, err error) {
	release, err := c.o.Library.Hold(ctx)
	if err != nil {
		return t, err
	}
	defer release()
	if exists, err := c.o.Library.Has(digest); err != nil || !exists {
		return t, errors.Join(err, sandbox.ImageMissing(digest.String()))
	}
	var dropped []string
	if err := c.o.Step("write version"); err != nil {
		return t, err
	}
	err = c.files.change(ctx, func(all []Template) (Template, error) {
		if t, err = target(all, caller, ref); err != nil {
			return t, err
		}
		t.Last++
		v.Number = t.Last
		t.Versions = append(t.Versions, v)
		if v.Maker == nil {
			dropped = t.publish(ref, v.Number)
		}
		return t, nil
	})
	if err != nil {
		return t, err
	}
	return t, c.drop(ctx, dropped)
}

// keptUntagged is the number of versions without a tag that are preserved.
const keptUntagged = 10

// publish makes the tags of a request refer to a version. It removes the oldest untagged versions,
// and returns their memory.
func (t *Template) publish(ref naming, number int) (dropped []string) {
	for _, tag := range append([]string{ref.Tag}, ref.tags...) {
		t.Tags[tag] = number
	}
	if t.Tags[sandbox.DefaultTag] == 0 {
		t.Tags[sandbox.DefaultTag] = number
	}
	untagged, old := 0, map[int]bool{}
	for _, v := range slices.Backward(t.Versions) {
		if v.Maker != nil || len(t.TagsOf(v.Number)) > 0 {
			continue
		}
		if untagged++; untagged > keptUntagged {
			dropped, old[v.Number] = append(dropped, v.Memory), true
		}
	}
	t.Versions = slices.DeleteFunc(t.Versions, func(v Version) bool { return old[v.Number] })
	return dropped
}

// finish completes a version after its memory was saved, or if it has none.
func (c *Catalog) finish(ctx context.Context, id string, ref naming, number int, memory, note string) (t Template, err error) {
	if err := c.o.Step("complete version"); err != nil {
		return t, err
	}
	var dropped []string
	err = c.files.change(ctx, func(all []Template) (Template, error) {
		t, err = byID(all, id, ref.Reference)
		if err != nil {
			return t, err
		}
		v := t.version(number)
		if v == nil {
			return t, fault.New(fault.Conflict, "template_removed", "the template was removed while its version was made")
		}
		v.Memory, v.Note, v.Maker = memory, note, nil
		dropped = t.publish(ref, number)
		return t, nil
	})
	if err != nil {
		return t, err
	}
	return t, c.drop(ctx, dropped)
}

// byID returns the template with an ID.
func byID(all []Template, id string, ref sandbox.Reference) (Template, error) {
	for _, t := range all {
		if t.ID == id {
			return t, nil
		}
	}
	return Template{}, notFound(ref)
}

// abandon removes a version that could not be completed.
func (c *Catalog) abandon(ctx context.Context, id string, number int, memory string) error {
	err := c.files.change(ctx, func(all []Template) (Template, error) {
		t, err := byID(all, id, sandbox.Reference{Name: id})
		if err == nil {
			t.forget(number)
		}
		return t, err
	})
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return errors.Join(err, c.drop(ctx, []string{memory}))
}

// forget removes a version and its tags.
func (t *Template) forget(number int) {
	t.Versions = slices.DeleteFunc(t.Versions, func(v Version) bool { return v.Number == number })
	for tag, n := range t.Tags {
		if n == number {
			delete(t.Tags, tag)
		}
	}
}

// drop removes the memory of removed versions. Memory that cannot be removed now is removed when
// the state directory is next opened.
func (c *Catalog) drop(ctx context.Context, list []string) error {
	for _, memory := range list {
		if memory == "" {
			continue
		}
		if err := c.o.Step("remove memory"); err != nil {
			return err
		}
		if err := c.sandboxes.Drop(ctx, memory); err != nil {
			c.o.Log.Warn("cannot remove the saved memory of a template", "snapshot", memory, "err", err)
		}
	}
	return nil
}
