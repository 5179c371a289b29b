package catalog

import (
	"context"
	"errors"
	"slices"
)

// repair removes incomplete versions of dead processes, and memory that no version needs.
func (c *Catalog) repair(ctx context.Context) error {
	all, err := c.files.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range all {
		if !slices.ContainsFunc(t.Versions, abandoned) {
			continue
		}
		for _, v := range t.Versions {
			if abandoned(v) {
				errs = append(errs, c.sandboxes.Clean(ctx, t.key(v.Number)))
			}
		}
		errs = append(errs, c.files.change(ctx, func(all []Template) (Template, error) {
			for _, now := range all {
				if now.ID == t.ID {
					now.Versions = slices.DeleteFunc(now.Versions, abandoned)
					return now, nil
				}
			}
			return Template{ID: t.ID}, nil
		}))
	}
	if all, err = c.files.list(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	need := map[string]string{}
	making := map[string]bool{}
	for _, t := range all {
		for _, v := range t.Versions {
			need[t.key(v.Number)], making[t.key(v.Number)] = v.Memory, v.Maker != nil
		}
	}
	return errors.Join(append(errs, c.sandboxes.Sweep(ctx, func(version, memory string) bool {
		return making[version] || memory != "" && need[version] == memory
	}))...)
}

// abandoned reports whether a version will never be completed.
func abandoned(v Version) bool { return v.Maker != nil && !v.Maker.Alive() }
