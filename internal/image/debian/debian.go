// Package debian owns the first files of a Debian image: it chooses packages from a mirror,
// verifies them by the archive's signature, and unpacks those that dpkg needs to install all of
// them inside a sandbox. So images can be built where no registry is reachable.
package debian

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Codes of errors.
const (
	CodeMirror    = "debian_mirror_failed"
	CodeSignature = "debian_signature_invalid"
	CodeIntegrity = "debian_file_invalid"
	CodePackage   = "debian_package_missing"
)

// DefaultMirror is Debian's own mirror, whose address leads to a nearby server.
const DefaultMirror = "http://deb.debian.org/debian"

// DefaultKeyring is the file of the package debian-archive-keyring with the keys of the archive.
const DefaultKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Options select the packages and their source.
type Options struct {
	Mirror  string
	Suite   string // such as bookworm
	Keyring string // file with the OpenPGP keys that may sign the archive
	Include []string
	Client  *http.Client
	// Report is called for each step.
	Report func(text string)
}

// architectures are Debian's names of architectures, by Go's names.
var architectures = map[string]string{"amd64": "amd64", "arm64": "arm64"}

// Prepare writes a build context into an empty directory: root.tar with the unpacked essential
// packages, debs with all packages, and setup.sh, which installs them.
func Prepare(ctx context.Context, dir string, o Options) error {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return fault.Newf(fault.Unsupported, "debian_architecture", "Debian images cannot be made on %s", runtime.GOARCH)
	}
	if err := checkMirror(o.Mirror); err != nil {
		return err
	}
	m := &mirror{client: o.Client, base: o.Mirror}
	release, err := m.release(ctx, o.Suite, o.Keyring)
	if err != nil {
		return err
	}
	o.Report("read the list of packages of " + o.Suite)
	all, err := m.packages(ctx, release, arch)
	if err != nil {
		return err
	}
	chosen, err := all.choose(o.Include)
	if err != nil {
		return err
	}
	debs := filepath.Join(dir, "debs")
	if err := os.Mkdir(debs, 0o755); err != nil {
		return err
	}
	if err := m.fetch(ctx, debs, chosen, o.Report); err != nil {
		return err
	}
	o.Report("unpack the essential packages")
	if err := unpack(ctx, filepath.Join(dir, "root.tar"), debs, chosen); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(debs, "setup.sh"), setup(o.Suite, o.Mirror, chosen), 0o755)
}

// checkMirror refuses an address that is not a URL, or that would be more than one word in a shell
// script or in apt's list of sources.
func checkMirror(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(text, " '\"\\$`\n\t[]#") {
		return fault.Newf(fault.Invalid, "debian_mirror_invalid", "%.200q is not the address of a mirror, such as %s", text, DefaultMirror)
	}
	return nil
}
