package catalog

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
)

// List returns the templates that a caller may see.
func (c *Catalog) List(caller sandbox.Principal) ([]Template, error) {
	all, err := c.files.list()
	return slices.DeleteFunc(all, func(t Template) bool { return !t.maySee(caller) }), err
}

// Inspect returns one template by its name, an alias or its ID. A template of the host that none of
// the catalog replaces has no versions, and Host set.
func (c *Catalog) Inspect(caller sandbox.Principal, name string) (Template, error) {
	ref, err := sandbox.ParseReference(name)
	if err != nil {
		return Template{}, err
	}
	all, err := c.files.list()
	if err != nil {
		return Template{}, err
	}
	t, err := find(all, caller, ref)
	if fault.KindOf(err) == fault.NotFound {
		return hostTemplate(ref)
	}
	if err == nil && t.tagged(ref.Tag) == nil && ref.Tag != sandbox.DefaultTag {
		err = sandbox.TagUnknown(ref)
	}
	return t, err
}

// hostTemplate describes a template that shows the programs of the host.
func hostTemplate(ref sandbox.Reference) (Template, error) {
	for _, known := range template.Known() {
		if !slices.Contains(known[:], ref.Path()) {
			continue
		}
		if ref.Tag != sandbox.DefaultTag {
			return Template{}, sandbox.TagUnknown(ref)
		}
		return Template{ID: known[0], Name: known[1], Host: true}, nil
	}
	return Template{}, notFound(ref)
}

// Tag makes tags refer to the version of a reference.
func (c *Catalog) Tag(ctx context.Context, caller sandbox.Principal, name string, tags []string) (Template, error) {
	ctx, action := c.audit.Begin(ctx, caller.Actor(), "template.tag", name)
	t, err := c.alter(ctx, caller, name, func(t *Template, _ []Template, ref sandbox.Reference) error {
		v := t.tagged(ref.Tag)
		if v == nil || v.Maker != nil {
			return sandbox.TagUnknown(ref)
		}
		for _, tag := range tags {
			if _, err := parse("t:" + tag); err != nil {
				return err
			}
			t.Tags[tag] = v.Number
		}
		return nil
	})
	return t, action.Finish(ctx, err)
}

// Alias gives a template additional names.
func (c *Catalog) Alias(ctx context.Context, caller sandbox.Principal, name string, aliases []string) (Template, error) {
	ctx, action := c.audit.Begin(ctx, caller.Actor(), "template.alias", name)
	t, err := c.alter(ctx, caller, name, func(t *Template, all []Template, _ sandbox.Reference) error {
		for _, alias := range aliases {
			ref, err := parse(alias)
			if err != nil {
				return err
			}
			if ref.Tag != sandbox.DefaultTag {
				return fault.Newf(fault.Invalid, "template_name_invalid", "the alias %q has a tag", alias).WithHint("leave the tag out: an alias has all tags of its template")
			}
			if slices.ContainsFunc(all, func(other Template) bool { return other.matches(ref) && other.ID != t.ID }) {
				return nameTaken(ref.Path())
			}
			if err := checkHostName(ref.Path(), t.Owner); err != nil {
				return err
			}
			if !t.matches(ref) {
				t.Aliases = append(t.Aliases, ref.Path())
			}
		}
		return nil
	})
	return t, action.Finish(ctx, err)
}

// alter changes a template that a caller may change.
func (c *Catalog) alter(ctx context.Context, caller sandbox.Principal, name string, do func(t *Template, all []Template, ref sandbox.Reference) error) (t Template, err error) {
	ref, err := sandbox.ParseReference(name)
	if err != nil {
		return t, err
	}
	if err := c.o.Step("alter"); err != nil {
		return t, err
	}
	err = c.files.change(ctx, func(all []Template) (Template, error) {
		if t, err = findToChange(all, caller, ref); err != nil {
			return t, err
		}
		return t, do(&t, all, ref)
	})
	return t, err
}

// Remove removes a whole template, one of its aliases, or with tagged one tag, together with the
// version if no other tag refers to it. Running sandboxes are not affected.
func (c *Catalog) Remove(ctx context.Context, caller sandbox.Principal, name string, tagged bool) error {
	ctx, action := c.audit.Begin(ctx, caller.Actor(), "template.remove", name)
	var dropped []string
	_, err := c.alter(ctx, caller, name, func(t *Template, _ []Template, ref sandbox.Reference) error {
		if i := slices.Index(t.Aliases, ref.Path()); i >= 0 && !tagged {
			t.Aliases = slices.Delete(t.Aliases, i, i+1)
			return nil
		}
		if !tagged {
			for _, v := range t.Versions {
				dropped = append(dropped, v.Memory)
			}
			t.Versions = nil
			return nil
		}
		v := t.tagged(ref.Tag)
		if v == nil {
			return sandbox.TagUnknown(ref)
		}
		delete(t.Tags, ref.Tag)
		if _, number := numberOf(ref.Tag); number || len(t.TagsOf(v.Number)) == 0 {
			dropped = append(dropped, v.Memory)
			t.forget(v.Number)
		}
		return nil
	})
	if err == nil {
		err = c.drop(ctx, dropped)
	}
	if err == nil {
		_, err = c.o.Library.Prune(ctx)
	}
	return action.Finish(ctx, err)
}
