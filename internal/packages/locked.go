package packages

import "io"

// RuleLockfile is the rule of refusals of packages that no lockfile of the workspace names.
const RuleLockfile = "packages.lockfile_only"

// LockedFile is how lockfiles name a file, if they do not name it by its version and the digest of
// its bytes.
type LockedFile struct {
	// Part is appended to the version, as in go.sum for a go.mod.
	Part string
	// Sum computes the digest of the ecosystem's own algorithm, in the format of Digest.String.
	Sum func(content io.ReaderAt, size int64) (string, error)
	// Describes is the digest of the archive that the file describes. Lockfiles have that digest
	// and not the file's own.
	Describes Digest
}

// Locks are what lockfiles say about one file that they name.
type Locks struct {
	// Layer is the layer of the policy that requires a lockfile.
	Layer string
	// Digests are the digests that the lockfiles have of the file. One of them must match.
	Digests []Digest
}

// Strongest returns the digests of the strongest algorithm. With digests of several algorithms, a
// weak one in one lockfile must not replace a strong one in another.
func (l *Locks) Strongest() []Digest {
	var out []Digest
	for _, d := range l.Digests {
		switch {
		case len(out) == 0 || d.Strength() > out[0].Strength():
			out = []Digest{d}
		case d.Strength() == out[0].Strength():
			out = append(out, d)
		}
	}
	return out
}
