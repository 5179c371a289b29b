package enginebench

import (
	"fmt"
	"slices"

	"github.com/crannog/crannog/api"
)

const (
	imageOCI  = "oci"
	imageHost = "host-view"
)

// choose returns the engines of the host and whether each is measured. An engine that is named and
// does not exist is an error.
func choose(listed []api.Engine, o Options) ([]Engine, error) {
	for _, name := range o.Engines {
		if !slices.ContainsFunc(listed, func(e api.Engine) bool { return e.Name == name }) {
			return nil, fmt.Errorf("%w: there is no engine %q", ErrOptions, name)
		}
	}
	var engines []Engine
	for _, e := range listed {
		if len(o.Engines) > 0 && !slices.Contains(o.Engines, e.Name) {
			continue
		}
		entry := Engine{Name: e.Name, Boundary: e.Boundary, Version: e.Version, Escapes: escapesOf(e.Name)}
		switch {
		case !e.Available:
			entry.Reason, entry.Fix = e.Reason, e.Fix
		case o.Image != "" && !slices.Contains(e.Images, imageOCI):
			entry.Reason = "it does not start from OCI images"
		case o.Image == "" && !slices.Contains(e.Images, imageHost):
			entry.Reason = "it does not start from the host's programs"
			if slices.Contains(e.Images, imageOCI) {
				entry.Fix = "name an image with --image; all engines then start from it"
			}
		default:
			entry.Measured = true
		}
		engines = append(engines, entry)
	}
	return engines, nil
}
