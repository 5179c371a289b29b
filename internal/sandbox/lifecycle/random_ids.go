package lifecycle

import (
	"regexp"

	"github.com/crannog/crannog/internal/ids"
)

// idPrefix begins the ID of every sandbox.
const idPrefix = "i"

var idPattern = regexp.MustCompile(`^` + idPrefix + `[a-z0-9]{19}$`)

func newID() string { return ids.New(idPrefix) }
