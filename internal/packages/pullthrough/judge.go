package pullthrough

import "github.com/crannog/crannog/internal/packages"

// judge returns why a sandbox may not get a file. A file of images is permitted if its own version
// is, or if one of its images is. It is not permitted only by its own version if the cache knows it
// as a part of an image that the policy denies: a client could otherwise get a denied tag by its
// digests.
func (s *session) judge(a packages.Artifact, f packages.File) *packages.Denial {
	own := s.request.Gate(a, f.About, true)
	if own != nil && own.Rule == packages.RuleDenied {
		return own
	}
	var denied *packages.Denial
	for _, versions := range f.Images {
		d := s.image(a, versions)
		if d == nil {
			return nil
		}
		if d.Rule == packages.RuleDenied {
			denied = d
		}
	}
	if denied != nil {
		return denied
	}
	return own
}

// image returns why a sandbox may not get an image that is known by several versions. One of them
// must be permitted, and none denied.
func (s *session) image(a packages.Artifact, versions []string) *packages.Denial {
	var first *packages.Denial
	permitted := false
	for _, v := range versions {
		a.Version = v
		d := s.request.Gate(a, packages.Version{}, true)
		switch {
		case d == nil:
			permitted = true
		case d.Rule == packages.RuleDenied:
			return d
		case first == nil:
			first = d
		}
	}
	if permitted {
		return nil
	}
	return first
}

// denies returns the denial of a document that has a name by its digest, if a list denies this
// name.
func (s *session) denies(name, digest string) *packages.Denial {
	if digest == "" {
		return nil
	}
	d := s.request.Gate(packages.Artifact{Ecosystem: s.request.Ecosystem, Name: name, Version: digest}, packages.Version{}, true)
	if d == nil || d.Rule != packages.RuleDenied {
		return nil
	}
	return d
}
