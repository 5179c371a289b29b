package content

import (
	"net/url"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// Form is what the archive of a package is expected to be. Forms can be compared.
type Form struct {
	archive archive
	// native is set if native programs belong in the package.
	native bool
	// launchers is set if programs of Windows belong in it.
	launchers bool
	// manifest is set if the package.json can say that the package is for one platform.
	manifest bool
}

type archive int

// Kinds of archives.
const (
	unknownArchive archive = iota
	tarArchive             // also compressed
	zipArchive
)

// launchers are Python projects whose pure wheels have the programs that start scripts on Windows.
// Without them no Python package can be built.
var launchers = map[string]bool{"pip": true, "setuptools": true, "distlib": true}

// toolchain is the module with Go's own programs.
const toolchain = "golang.org/toolchain"

// FormOf returns the form of a file, by its escaped path on a registry. It returns false if the
// file is not inspected.
func FormOf(a packages.Artifact, escaped string) (Form, bool) {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return Form{}, true // unknown
	}
	file := strings.ToLower(path.Base(plain))
	switch a.Ecosystem {
	case packages.NPM:
		return Form{archive: tarArchive, manifest: true}, true
	case packages.Crates:
		return Form{archive: tarArchive}, true
	case packages.Go:
		return Form{archive: zipArchive, native: a.Name == toolchain}, strings.HasSuffix(file, ".zip")
	case packages.PyPI:
		if strings.HasSuffix(file, ".metadata") {
			return Form{}, false
		}
		f := Form{archive: kindOf(file), launchers: launchers[a.Name]}
		if stem, wheel := strings.CutSuffix(file, ".whl"); wheel {
			f.archive = zipArchive
			// The last part of the name is the platform.
			f.native = !strings.HasSuffix(stem, "-any")
		}
		return f, true
	case packages.Maven:
		f := Form{archive: kindOf(file), native: true}
		return f, f.archive != unknownArchive
	default:
		return Form{}, false
	}
}

// kindOf returns the kind of an archive by the ending of its name.
func kindOf(file string) archive {
	for _, ending := range []string{".zip", ".jar", ".war", ".ear", ".aar", ".klib"} {
		if strings.HasSuffix(file, ending) {
			return zipArchive
		}
	}
	for _, ending := range []string{".tar.gz", ".tgz", ".tar.bz2", ".tar"} {
		if strings.HasSuffix(file, ending) {
			return tarArchive
		}
	}
	return unknownArchive
}
