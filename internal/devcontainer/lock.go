package devcontainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
)

// lockFile is a devcontainer-lock.json. It names the artifact of each feature of a registry by its
// digest, so that everyone installs the same.
type lockFile struct {
	Features map[string]lockedFeature `json:"features"`
}

type lockedFeature struct {
	Version   string   `json:"version,omitempty"`
	Resolved  string   `json:"resolved"`  // reference with the digest
	Integrity string   `json:"integrity"` // the digest
	DependsOn []string `json:"dependsOn,omitempty"`
}

var sha256Digest = pattern.New(`^sha256:[0-9a-f]{64}$`)

// LockName returns the name of a configuration's lock file, which is in the same directory.
func LockName(file string) string {
	hidden := ""
	if strings.HasPrefix(path.Base(file), ".") {
		hidden = "."
	}
	return path.Join(path.Dir(file), hidden+"devcontainer-lock.json")
}

// lock reads the lock file, if there is one. It cannot lead to another feature than the
// configuration names.
func (p *planner) lock() error {
	name := LockName(p.plan.File)
	if _, err := exists(p.root, name); err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err // opening a named pipe would wait for a writer
	}
	data, err := Read(p.root, name)
	if err != nil {
		return err
	}
	var file lockFile
	if err := json.Unmarshal(data, &file); err != nil {
		return fault.Newf(fault.Invalid, CodeInvalid, "%s is not a lock file: %v", name, err)
	}
	p.plan.Locked = map[string]string{}
	for _, ref := range slices.Sorted(maps.Keys(file.Features)) {
		locked := file.Features[ref]
		at, digest, _ := strings.Cut(locked.Resolved, "@")
		if !isArtifactName(locked.Resolved) || !sha256Digest.MatchString(digest) || at != withoutVersion(ref) || locked.Integrity != digest {
			return fault.Newf(fault.Invalid, CodeInvalid, "%s: the entry of %.200q does not name this feature with a SHA-256 digest", name, ref).
				WithHint("write the file again: crannog dev --lock")
		}
		p.plan.Locked[ref] = locked.Resolved
	}
	return nil
}

// source returns the reference by which a feature is fetched.
func (plan *Plan) source(ref string) string {
	if locked := plan.Locked[ref]; locked != "" {
		return locked
	}
	return ref
}

// checkLocked compares a fetched feature with the lock file.
func (p *planner) checkLocked(ref, digest string) error {
	locked, ok := p.plan.Locked[ref]
	switch {
	case ok && !strings.HasSuffix(locked, "@"+digest):
		return fault.Newf(fault.Invalid, CodeInvalid, "%s has the digest %s, and the lock file has another one", ref, digest)
	case !ok && p.plan.Locked != nil:
		note := fmt.Sprintf("%s is not in %s; crannog dev --lock adds it", ref, LockName(p.plan.File))
		if !slices.Contains(p.plan.Notes, note) {
			p.plan.Notes = append(p.plan.Notes, note)
		}
	}
	return nil
}

// WriteLock writes the lock file of a plan whose features are resolved, and returns its name. It
// replaces the file, and follows no link out of the workspace.
func (plan *Plan) WriteLock(dir string) (name string, err error) {
	file := lockFile{Features: map[string]lockedFeature{}}
	for _, f := range plan.Installs {
		if f.Local == "" {
			file.Features[f.Reference] = lockedFeature{f.Version, withoutVersion(f.Reference) + "@" + f.Digest, f.Digest, f.DependsOn}
		}
	}
	data, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	name = LockName(plan.File)
	temporary := name + ".new"
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		return "", errors.Join(err, root.Remove(temporary))
	}
	return name, nil
}
