package lifecycle

import (
	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/ids"
)

// idPrefix is the prefix of every sandbox's ID.
const idPrefix = "i"

var idPattern = pattern.New(`^` + idPrefix + `[a-z0-9]{19}$`)

func newID() string { return ids.New(idPrefix) }
