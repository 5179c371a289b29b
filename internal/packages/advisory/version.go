package advisory

import (
	"strings"

	"deps.dev/util/semver"
	debian "pault.ag/go/debian/version"

	"github.com/crannog/crannog/internal/packages"
)

// number is a parsed version. Exactly one field is set.
type number struct {
	general *semver.Version
	debian  *debian.Version
}

// maxNumber limits the length of a version that is parsed. Registries limit it similarly.
const maxNumber = 256

// parseNumber parses a version of an ecosystem. It returns false if versions of that form cannot be
// compared.
func parseNumber(e packages.Ecosystem, text string) (number, bool) {
	if text == "" || len(text) > maxNumber || !printable(text) {
		return number{}, false
	}
	if e == packages.Apt {
		v, err := debian.Parse(text)
		return number{debian: &v}, err == nil
	}
	system := semver.DefaultSystem
	switch e {
	case packages.NPM:
		system = semver.NPM
	case packages.Go:
		// OSV writes versions of modules without the v.
		system, text = semver.Go, "v"+strings.TrimPrefix(text, "v")
	case packages.PyPI:
		system = semver.PyPI
	case packages.Crates:
		system = semver.Cargo
	case packages.Maven:
		system = semver.Maven
	default:
		return number{}, false
	}
	v, err := system.Parse(text)
	if err != nil || v.IsWildcard() {
		return number{}, false
	}
	return number{general: v}, true
}

// compare returns a negative number if n is less than o, and zero if they are equal.
func (n number) compare(o number) int {
	if n.debian != nil && o.debian != nil {
		return debian.Compare(*n.debian, *o.debian)
	}
	return n.general.Compare(o.general)
}
