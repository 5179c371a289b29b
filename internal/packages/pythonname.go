package packages

import (
	"strings"

	"github.com/crannog/crannog/internal/host/pattern"
)

var nameSeparators = pattern.New(`[-_.]+`)

// PythonName returns the form of a Python project's name that all its spellings share (PEP 503).
func PythonName(name string) string {
	return strings.ToLower(nameSeparators.Regexp().ReplaceAllString(name, "-"))
}
