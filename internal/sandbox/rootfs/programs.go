package rootfs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// MaxPrograms limits the files and directories of the host that a sandbox may see beside its
// template. A template has a mount point for each.
const MaxPrograms = 4

// ProgramsDir is the directory of these mount points inside.
const ProgramsDir = "/.crannog/programs"

// ProgramPath returns the path inside of the program with a number, counting from 1. Files and
// directories have different mount points, because a file cannot be mounted on a directory.
func ProgramPath(number int, dir bool) string {
	if dir {
		return ProgramsDir + "/" + strconv.Itoa(number)
	}
	return ProgramsDir + "/file-" + strconv.Itoa(number)
}

// ResolvePrograms checks the programs of a request. It follows links only once, here, under the
// caller's own permissions.
func ResolvePrograms(list []string) ([]engine.Bind, error) {
	if len(list) > MaxPrograms {
		return nil, fault.Newf(fault.Invalid, "programs_invalid", "at most %d programs of the host can be mounted", MaxPrograms)
	}
	var binds []engine.Bind
	for i, name := range list {
		if !filepath.IsAbs(name) {
			return nil, fault.New(fault.Invalid, "programs_invalid", "the path of a host program must be absolute")
		}
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, "programs_invalid", "a host program does not exist or is not accessible")
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, "programs_invalid", "a host program is not accessible")
		}
		// A pipe, a device or a socket would give the sandbox a connection to the host.
		if real == "/" || !info.IsDir() && !info.Mode().IsRegular() {
			return nil, fault.New(fault.Invalid, "programs_invalid", "a host program must be a file, or a directory other than the root")
		}
		binds = append(binds, engine.Bind{Source: real, Target: ProgramPath(i+1, info.IsDir()), Owned: true})
	}
	return binds, nil
}

// programsOf returns those binds of an image that mount programs beside the template.
func programsOf(image engine.Image) (list []engine.Bind) {
	for _, b := range image.View().Binds {
		if strings.HasPrefix(b.Target, ProgramsDir+"/") {
			list = append(list, b)
		}
	}
	return list
}

// AddPrograms adds programs of the host to a template.
func AddPrograms(t *sandbox.Template, binds []engine.Bind) error {
	if len(binds) == 0 {
		return nil
	}
	if t.Origin != nil {
		return fault.New(fault.Invalid, "snapshot_programs", "the programs of a snapshot cannot be changed").
			WithHint("omit the programs")
	}
	var err error
	if t.Image, err = t.Image.Show(binds...); err != nil {
		return err
	}
	revision, err := programsRevision(t.Image)
	t.Revision += revision
	return err
}

// ShowsPrograms reports whether programs of the host are mounted in an image beside its template.
func ShowsPrograms(image engine.Image) bool { return len(programsOf(image)) > 0 }

// Revision identifies the state of everything that is mounted in an image beside its template:
// programs of the host and directories of version managers.
func Revision(image engine.Image) (string, error) {
	programs, err := programsRevision(image)
	return programs + toolsRevision(image), err
}

// programsRevision identifies the state of the mounted programs. Saved memory has pages of them
// mapped.
func programsRevision(image engine.Image) (string, error) {
	binds := programsOf(image)
	if len(binds) == 0 {
		return "", nil
	}
	sum := sha256.New()
	for _, b := range binds {
		err := walkProgram(b.Source, func(name string, d fs.DirEntry) error {
			info, err := d.Info()
			if err == nil {
				fmt.Fprintf(sum, "%q %v %d %d\n", name, info.Mode(), info.Size(), info.ModTime().UnixNano())
			}
			return ignoreGone(err)
		})
		if err != nil {
			return "", err
		}
	}
	return "+" + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// maskPrograms hides those files of programs that a policy does not allow inside.
func (c *Masks) maskPrograms(image engine.Image, match policy.Matcher) error {
	for _, b := range programsOf(image) {
		err := walkProgram(b.Source, func(name string, d fs.DirEntry) error {
			rel, err := filepath.Rel(b.Source, name)
			if err != nil {
				return err
			}
			inside := path.Join(b.Target, filepath.ToSlash(rel))
			if d.Type()&fs.ModeSymlink != 0 || !match.Denied(inside) && (!d.IsDir() || !match.Denied(inside+"/x")) {
				return nil // the target of a link is hidden itself, or not inside
			}
			if c.hide = append(c.hide, inside); d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if n := c.count(); n > maxMasked {
		return fault.Newf(fault.Exhausted, "policy_covers_too_much", "the policy hides or protects %d paths, above the limit of %d", n, maxMasked)
	}
	return nil
}

// walkProgram visits all files of a program.
func walkProgram(source string, visit func(string, fs.DirEntry) error) error {
	seen := 0
	return filepath.WalkDir(source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if err = ignoreGone(err); err == nil && d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		if seen++; seen > maxCheckedFiles {
			return fault.Newf(fault.Exhausted, "programs_too_large", "a program of the host has more than %d files", maxCheckedFiles)
		}
		return visit(name, d)
	})
}

// ignoreGone drops the error of a file that has vanished or that this user may not read.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
