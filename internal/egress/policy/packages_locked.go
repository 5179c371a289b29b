package policy

import (
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/lockfile"
)

// Locks reports whether the document has settings about lockfiles.
func (p Packages) Locks() bool { return p.LockfileOnly != nil || len(p.Unlocked) > 0 }

// lockedInstalls combines the layers' settings about lockfiles.
type lockedInstalls struct {
	only     *bool
	layer    string   // the uppermost one that has packages.lockfile_only
	by       []string // all that have it
	unlocked []packageList
}

func (i *lockedInstalls) merge(l Layer) {
	d := l.Document.Packages
	if set(d.LockfileOnly) {
		if i.layer == "" {
			i.layer = l.Kind
		}
		i.by = append(i.by, l.Kind)
	}
	i.only = either(i.only, d.LockfileOnly)
	if len(d.Unlocked) > 0 {
		i.unlocked = append(i.unlocked, packageList{l.Kind, d.Unlocked})
	}
}

func (i *lockedInstalls) into(p *Packages) {
	p.LockfileOnly = i.only
	for _, l := range i.unlocked {
		p.Unlocked = union(p.Unlocked, l.entries)
	}
}

// LockfileOnly reports whether only packages that a lockfile names may be installed.
func (p *Policy) LockfileOnly() bool { return set(p.installs.locked.only) }

// LockedGate returns a gate that also denies packages that the lockfiles do not name.
func (p *Policy) LockedGate(gate packages.Gate, x *lockfile.Index) packages.Gate {
	if !p.LockfileOnly() {
		return gate
	}
	return func(a packages.Artifact, v packages.Version, known bool) *packages.Denial {
		if d := gate(a, v, known); d != nil {
			return d
		}
		return p.notLocked(a, x)
	}
}

// Lock returns what the lockfiles say about a file: part is empty, or a part of the version that
// lockfiles name separately. Nil and nil mean that the file needs no lockfile.
func (p *Policy) Lock(a packages.Artifact, part string, x *lockfile.Index) (*packages.Locks, *packages.Denial) {
	if !p.LockfileOnly() || p.isUnlocked(a) {
		return nil, nil
	}
	a.Version += part
	if digests := x.Digests(a); len(digests) > 0 {
		return &packages.Locks{Layer: p.installs.locked.layer, Digests: digests}, nil
	}
	return nil, p.denyUnlocked(a, x)
}

// isUnlocked reports whether a package needs no lockfile. Without a version, one of its versions is
// enough, because another request will name the version.
func (p *Policy) isUnlocked(a packages.Artifact) bool {
	i := &p.installs.locked
	return excepted(i.by, i.unlocked, func(l packageList) bool { return l.find(a, a.Version != "") != "" })
}

func (p *Policy) notLocked(a packages.Artifact, x *lockfile.Index) *packages.Denial {
	if p.isUnlocked(a) || x.Has(a) {
		return nil
	}
	return p.denyUnlocked(a, x)
}

// maxNamedVersions limits how many versions of the lockfiles a reason names.
const maxNamedVersions = 3

func (p *Policy) denyUnlocked(a packages.Artifact, x *lockfile.Index) *packages.Denial {
	reason := "The package " + a.String() + " is in no lockfile of the workspace, and packages.lockfile_only of the " + p.installs.locked.layer + " layer requires one."
	versions := x.Versions(a)
	switch {
	case len(versions) > 0:
		reason += " They name " + a.Name + " with " + strings.Join(versions[:min(len(versions), maxNamedVersions)], ", ")
		if more := len(versions) - maxNamedVersions; more > 0 {
			reason += " and " + strconv.Itoa(more) + " further versions"
		}
		reason += "."
	case a.Ecosystem == packages.Apt || a.Ecosystem == packages.Maven || a.Ecosystem == packages.OCI:
		reason += " No lockfile of " + string(a.Ecosystem) + " is known: packages.unlocked can permit the package."
	default:
		if why := x.Why(a.Ecosystem); why != "" {
			reason += " " + why
		}
	}
	return &packages.Denial{Rule: packages.RuleLockfile, Layer: p.installs.locked.layer, Reason: reason}
}

// lockedWarnings adds warnings about settings of lockfiles that have no effect.
func (i *installs) lockedWarnings(warnings *[]Warning) {
	if set(i.locked.only) && len(i.cache) == 0 {
		*warnings = append(*warnings, Warning{Layer: i.locked.layer, Field: packages.RuleLockfile, Text: "has no effect, because packages.cache lists no ecosystem"})
	}
	if !set(i.locked.only) && len(i.locked.unlocked) > 0 {
		*warnings = append(*warnings, Warning{Layer: i.locked.unlocked[0].layer, Field: "packages.unlocked", Text: "has no effect without packages.lockfile_only"})
	}
}

// locked compares what may be installed without a lockfile.
func (w *widening) locked(a, b *lockedInstalls) {
	if !set(a.only) {
		return
	}
	if !set(b.only) {
		w.add("packages.lockfile_only: was removed")
		return
	}
	w.exceptions("unlocked", a.unlocked, b.unlocked)
}
