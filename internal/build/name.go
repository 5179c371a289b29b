package build

import (
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/sandbox"
)

// checkName refuses a name that the caller may not give to an image. All callers use the same
// names, so a key that could choose any name could replace python:3.12-slim by its own programs, in
// which other callers would then put their secrets. The ID of the key is part of its names, so no
// two keys share one.
func checkName(caller sandbox.Principal, text string) error {
	ref, err := registry.Parse(text)
	if err != nil {
		return err
	}
	if caller.Local {
		return nil
	}
	prefix := "localhost/" + caller.KeyID + "/"
	if caller.KeyID == "" || !strings.HasPrefix(ref.Context().Name(), prefix) {
		return fault.Newf(fault.Denied, "image_name_not_allowed", "a client with a key may only name images that begin with %s", prefix).
			WithHint("for example: " + prefix + "app")
	}
	return nil
}
