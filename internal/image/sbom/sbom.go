// Package sbom owns lists of the packages in an image: which ones its files name, and the formats
// SPDX and CycloneDX. The files are not trusted: their sizes and the number of packages are
// bounded, and a file that cannot be parsed names no package.
package sbom

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/fault"
)

// Kinds of packages, which are types of package URLs.
const (
	Deb    = "deb"
	Apk    = "apk"
	NPM    = "npm"
	PyPI   = "pypi"
	Golang = "golang"
)

// Package is an installed package.
type Package struct {
	Kind, Name, Version string
	Arch                string // of deb and apk
	// Found is the file that names the package.
	Found string
}

// List is the content of one image.
type List struct {
	Packages []Package // sorted, each one once
	Distro   string    // ID of /etc/os-release, such as debian
	// Unread counts files that should name packages and cannot be parsed, or are too large.
	Unread int
}

const (
	maxPackages = 200_000
	maxText     = 512      // bytes of a name or a version
	maxDatabase = 64 << 20 // bytes of the database of a package manager
	maxManifest = 4 << 20  // bytes of a file that describes one package
	maxProgram  = 256 << 20
)

// reader parses a file into packages.
type reader struct {
	parse func(data []byte) ([]Package, error)
	limit int64
}

// readerOf returns the parser for a path, and false if the file names no package.
func readerOf(name string, executable bool) (reader, bool) {
	base, dir := path.Base(name), path.Dir(name)
	switch {
	case name == "var/lib/dpkg/status", dir == "var/lib/dpkg/status.d" && !strings.HasSuffix(base, ".md5sums"):
		return reader{parseDpkg, maxDatabase}, true
	case name == "lib/apk/db/installed", name == "usr/lib/apk/db/installed":
		return reader{parseApk, maxDatabase}, true
	case base == "package.json" && isNodeModule(dir):
		return reader{parseNPM, maxManifest}, true
	case base == "package-lock.json", base == "npm-shrinkwrap.json", base == ".package-lock.json" && path.Base(dir) == "node_modules":
		return reader{parseNPMLock, maxDatabase}, true
	case base == "METADATA" && strings.HasSuffix(dir, ".dist-info"), base == "PKG-INFO" && strings.HasSuffix(dir, ".egg-info"):
		return reader{parsePython, maxManifest}, true
	case executable:
		return reader{parseGo, maxProgram}, true
	}
	return reader{}, false
}

// isNodeModule reports whether a directory is that of an installed module: node_modules/NAME or
// node_modules/@SCOPE/NAME.
func isNodeModule(dir string) bool {
	parent := path.Dir(dir)
	if strings.HasPrefix(path.Base(parent), "@") {
		parent = path.Dir(parent)
	}
	return path.Base(parent) == "node_modules"
}

// Scan reads the files of an image, a tar of all files after all layers.
func Scan(ctx context.Context, files io.Reader) (List, error) {
	var out List
	seen := map[Package]bool{}
	for entries := tar.NewReader(files); ; {
		if ctx.Err() != nil {
			return List{}, context.Cause(ctx)
		}
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return List{}, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "etc/os-release" || name == "usr/lib/os-release" && out.Distro == "" {
			data, err := io.ReadAll(io.LimitReader(entries, maxManifest))
			if err != nil {
				return List{}, err
			}
			out.Distro = distroOf(data)
			continue
		}
		found, unread, err := scanFile(name, h, entries)
		if err != nil {
			return List{}, err
		}
		out.Unread += unread
		for _, p := range found {
			key := p
			key.Found = ""
			if seen[key] || !p.valid() {
				continue
			}
			if len(out.Packages) >= maxPackages {
				return List{}, fault.Newf(fault.Exhausted, "sbom_large", "the image names more than %d packages", maxPackages)
			}
			seen[key] = true
			p.Found = strings.ToValidUTF8(name, "�")
			out.Packages = append(out.Packages, p)
		}
	}
	slices.SortFunc(out.Packages, func(a, b Package) int {
		return strings.Compare(a.Kind+"\x00"+a.Name+"\x00"+a.Version+"\x00"+a.Arch, b.Kind+"\x00"+b.Name+"\x00"+b.Version+"\x00"+b.Arch)
	})
	return out, nil
}

// scanFile returns the packages that one file names. unread is 1 if it cannot be parsed.
func scanFile(name string, h *tar.Header, content io.Reader) (found []Package, unread int, err error) {
	r, ok := readerOf(name, h.Mode&0o111 != 0)
	if !ok {
		return nil, 0, nil
	}
	program := r.limit == maxProgram
	if program {
		magic := make([]byte, 4)
		n, err := io.ReadFull(content, magic)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, err
		}
		if n < len(magic) || string(magic) != "\x7fELF" {
			return nil, 0, nil
		}
		content = io.MultiReader(bytes.NewReader(magic), content)
	}
	if h.Size > r.limit {
		return nil, 1, nil
	}
	data, err := io.ReadAll(io.LimitReader(content, r.limit))
	if err != nil {
		return nil, 0, err
	}
	if found, err = r.parse(data); err != nil {
		return nil, 1, nil //nolint:nilerr // an image may contain any file; it counts as unread
	}
	return found, 0, nil
}

// valid reports whether name and version are texts of a usual kind. A file of the image chooses
// them, and tools show them.
func (p Package) valid() bool {
	for _, s := range []string{p.Name, p.Version, p.Arch} {
		if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return false
		}
	}
	return p.Name != ""
}

// distroOf returns the ID of os-release.
func distroOf(data []byte) string {
	for line := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "ID="); ok {
			id = strings.Trim(id, `"'`)
			if (Package{Name: id}).valid() {
				return id
			}
		}
	}
	return ""
}
