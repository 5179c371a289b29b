package pullthrough

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// Lock returns what lockfiles say about a file of a version, with LockedFile.Part. Nil and nil mean
// that no lockfile is required.
type Lock func(a packages.Artifact, part string) (*packages.Locks, *packages.Denial)

// contentCheck checks a file that was fetched and verified, or that the cache already has.
type contentCheck func(ctx context.Context, content *os.File, size int64) error

// locked compares a file with the digests of lockfiles, as far as the registry's data suffices for
// it. It returns the check that is left for the content, or nil.
func (s *session) locked(a packages.Artifact, f packages.File) (contentCheck, error) {
	if s.request.Lock == nil || f.Text != nil {
		return nil, nil // A document is no file of a lockfile.
	}
	locks, d := s.request.Lock(a, f.Locked.Part)
	if d != nil {
		return nil, denied(d, s.fact)
	}
	if locks == nil {
		return nil, nil
	}
	a.Version += f.Locked.Part
	want := locks.Strongest()
	if len(want) == 0 {
		return nil, s.notLocked(locks, a, "")
	}
	known := f.About.Digest
	if f.Unverified != "" {
		known = packages.Digest{}
	} else if f.Check != nil {
		known, _ = packages.ParseDigest(f.Integrity)
	}
	if f.Locked.Describes.Algorithm != "" {
		// The file itself is verified with the registry's data, and installs nothing. Its archive
		// is compared when it is requested, also if the algorithms differ here.
		known = f.Locked.Describes
		if known.Algorithm != want[0].Algorithm {
			return nil, nil
		}
	}
	if known.Algorithm == want[0].Algorithm {
		return nil, s.compare(locks, a, want, known)
	}
	// Attack: a registry, or who controls it, replaces the file and its own digest. The lockfile's
	// digest of another algorithm notices that only if it is computed over the content, also for a
	// file that another sandbox has put into the cache.
	return func(ctx context.Context, content *os.File, size int64) error {
		got, err := s.digest(ctx, f, want[0], content, size)
		if err != nil {
			return s.failed(err)
		}
		return s.compare(locks, a, want, got)
	}, nil
}

// digest computes a digest of the algorithm of like over a file. It does not move its position.
func (s *session) digest(ctx context.Context, f packages.File, like packages.Digest, content *os.File, size int64) (packages.Digest, error) {
	if like.Algorithm == packages.H1 {
		if f.Locked.Sum == nil {
			return packages.Digest{}, packages.Tampered("the file has no sum of the kind that the lockfile has")
		}
		var sum string
		err := s.cache.check(ctx, content, size, func(r io.ReaderAt, n int64) (err error) {
			sum, err = f.Locked.Sum(r, n)
			return err
		})
		got, _ := packages.ParseDigest(sum)
		return got, err
	}
	h := like.Hash()
	if _, err := io.Copy(h, io.NewSectionReader(content, 0, size)); err != nil {
		return packages.Digest{}, err
	}
	return packages.Digest{Algorithm: like.Algorithm, Sum: string(h.Sum(nil))}, nil
}

// compare returns the refusal for a digest that none of the lockfiles has.
func (s *session) compare(l *packages.Locks, a packages.Artifact, want []packages.Digest, got packages.Digest) error {
	if slices.ContainsFunc(want, func(d packages.Digest) bool { return d.Matches([]byte(got.Sum)) && d.Algorithm == got.Algorithm }) {
		return nil
	}
	return s.notLocked(l, a, got.String())
}

// maxNamedDigests limits how many digests of lockfiles a refusal names.
const maxNamedDigests = 3

func (s *session) notLocked(l *packages.Locks, a packages.Artifact, got string) error {
	var named []string
	for _, d := range l.Strongest() {
		named = append(named, d.String())
	}
	list := strings.Join(named[:min(len(named), maxNamedDigests)], " or ")
	if len(named) > maxNamedDigests {
		list += ", among others"
	}
	reason := a.String() + " is not the file that the lockfiles of the workspace name: its digest is " + got + " instead of " + list
	if len(named) == 0 {
		reason = "the lockfiles of the workspace have no digest of " + a.String()
	}
	r := refuse(http.StatusForbidden, "package_integrity", packages.RuleLockfile, reason, s.fact, nil)
	r.Layer = l.Layer
	return r
}
