package pullthrough

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/apt"
	"github.com/crannog/crannog/internal/packages/crates"
	"github.com/crannog/crannog/internal/packages/gomod"
	"github.com/crannog/crannog/internal/packages/maven"
	"github.com/crannog/crannog/internal/packages/npm"
	"github.com/crannog/crannog/internal/packages/oci"
	"github.com/crannog/crannog/internal/packages/pypi"
	"github.com/crannog/crannog/internal/packages/store"
)

// newProtocols returns the protocols of all ecosystems.
func newProtocols(now func() time.Time, keys apt.Keyring) map[packages.Ecosystem]packages.Protocol {
	return map[packages.Ecosystem]packages.Protocol{
		packages.NPM:    npm.Protocol{},
		packages.Go:     gomod.New(),
		packages.Apt:    apt.New(now, keys),
		packages.PyPI:   pypi.Protocol{},
		packages.Crates: crates.Protocol{},
		packages.Maven:  maven.Protocol{},
		packages.OCI:    oci.New(),
	}
}

// Serve answers a request.
func (c *Cache) Serve(ctx context.Context, r Request) (Answer, error) {
	fact := packages.Fact{Ecosystem: r.Ecosystem}
	p, ok := c.protocols[r.Ecosystem]
	if !ok {
		return Answer{}, refuse(http.StatusNotFound, "package_ecosystem", "packages.cache", "the cache does not know this ecosystem", fact, nil)
	}
	t := p.Parse(r.Origin, r.Path)
	fact.Name, fact.Version = t.Name, t.Version
	if t.Kind == packages.Service {
		return Answer{Pass: true}, nil
	}
	if t.Kind != packages.Document && t.Kind != packages.OfFile || t.Name == "" {
		return Answer{}, refuse(http.StatusForbidden, "package_request", packages.RuleRequest, "this path belongs to no package, so what it serves cannot be verified", fact, nil)
	}
	if !t.Shared {
		if d := r.Gate(packages.Artifact{Ecosystem: r.Ecosystem, Name: t.Name}, packages.Version{}, false); d != nil {
			return Answer{}, denied(d, fact)
		}
	}
	screen, err := c.newScreen(r, fact)
	if err != nil {
		return Answer{}, err
	}
	s := &session{cache: c, request: r, fact: fact, screen: screen}
	if t.Kind == packages.Document {
		return s.listing(ctx, p, t)
	}
	return s.file(ctx, p, t)
}

// listing returns a document without the versions that the gate denies.
func (s *session) listing(ctx context.Context, p packages.Protocol, t packages.Target) (Answer, error) {
	withheld, any := map[string]*packages.Denial{}, (*packages.Denial)(nil)
	var advisories []packages.Advisory // of removed versions
	out, err := p.Listing(ctx, s, t, func(id string, v packages.Version) bool {
		a := packages.Artifact{Ecosystem: s.request.Ecosystem, Name: t.Name, Version: id}
		d := s.request.Gate(a, v, true)
		if d == nil {
			var found []packages.Advisory
			if d, found = s.screen.judge(a, v, false); d != nil && len(advisories) < packages.MaxAdvisories {
				advisories = append(advisories, found...)
			}
		}
		if d != nil {
			withheld[id], any = d, d
		}
		return d == nil
	})
	if err != nil {
		return Answer{}, s.failed(err)
	}
	if err := s.screen.stopped(); err != nil {
		return Answer{}, err
	}
	fact := s.fact
	fact.Advisories = packages.AdvisoryIDs(advisories)
	fact.Hash, fact.Verdict, fact.Cached = "sha256:"+s.document, packages.Passed, !s.fetched
	if out.Digest != "" {
		fact.Hash = out.Digest
	}
	if out.Tolerated {
		fact.Verdict = packages.Unverified
	}
	var notice string
	if len(withheld) > 0 {
		fact.Verdict, fact.Withheld = packages.Filtered, newest(withheld)
		if out.Remaining == 0 {
			return Answer{}, denied(any, fact)
		}
		notice = noticeOf(t.Name, withheld)
	}
	if d := s.denies(t.Name, out.Digest); d != nil {
		return Answer{}, denied(d, fact)
	}
	if out.Digest != "" {
		if err := s.acceptable(out.Type); err != nil {
			return Answer{}, err
		}
	}
	return Answer{Status: http.StatusOK, Type: out.Type, Size: int64(len(out.Text)), Digest: out.Digest, Body: body(out.Text), Fact: fact, Notice: notice}, nil
}

// file returns a verified file.
func (s *session) file(ctx context.Context, p packages.Protocol, t packages.Target) (Answer, error) {
	f, err := p.File(ctx, s, t)
	if err != nil {
		return Answer{}, s.failed(err)
	}
	if f.Version != "" {
		s.fact.Version = f.Version
	}
	s.fact.Hash, s.fact.Scripts = f.About.Digest.String(), f.About.Scripts
	if f.Check != nil {
		s.fact.Hash = f.Integrity
	}
	if f.Digest != "" {
		s.fact.Hash = f.Digest
	}
	a := packages.Artifact{Ecosystem: s.request.Ecosystem, Name: t.Name, Version: s.fact.Version}
	if !t.Shared {
		if d := s.judge(a, f); d != nil {
			return Answer{}, denied(d, s.fact)
		}
		d, found := s.screen.judge(a, f.About, f.Metadata)
		if err := s.screen.stopped(); err != nil {
			return Answer{}, err
		}
		s.fact.Advisories = packages.AdvisoryIDs(found)
		if d != nil {
			return Answer{}, denied(d, s.fact)
		}
	}
	var left contentCheck
	if !t.Shared {
		if left, err = s.locked(a, f); err != nil {
			return Answer{}, err
		}
	}
	verdict := packages.Passed
	if f.Tolerated {
		verdict = packages.Unverified
	}
	if f.Unverified != "" {
		if s.request.Unverified == nil || !s.request.Unverified(a) {
			return Answer{}, refuse(http.StatusForbidden, "package_unverified", packages.RuleIntegrity,
				a.String()+" cannot be verified: "+f.Unverified+"; packages.unverified of the policy can permit it", s.fact, nil)
		}
		verdict, f.Integrity = packages.Unverified, unverifiedMark
		f.Check = func(io.ReaderAt, int64) error { return nil }
	}
	if f.Text != nil {
		if f.Digest != "" {
			if err := s.acceptable(f.Type); err != nil {
				return Answer{}, err
			}
		}
		s.fact.Verdict, s.fact.Cached = verdict, !s.fetched
		return Answer{Status: http.StatusOK, Type: f.Type, Size: int64(len(f.Text)), Digest: f.Digest, Body: body(f.Text), Fact: s.fact}, nil
	}
	content, entry, err := s.content(ctx, store.Entry{Key: f.URL, Ecosystem: s.request.Ecosystem, Name: t.Name, Version: s.fact.Version}, f)
	if err != nil {
		return Answer{}, s.failed(err)
	}
	if left != nil {
		if err := left(ctx, content, entry.Size); err != nil {
			content.Close()
			return Answer{}, err
		}
	}
	if !t.Shared && !f.Metadata {
		if err := s.inspect(ctx, a, t.Path, content, entry); err != nil {
			content.Close()
			return Answer{}, err
		}
	}
	if err := s.scan(ctx, a, t.Path, content, entry); err != nil {
		content.Close()
		return Answer{}, err
	}
	s.fact.Verdict, s.fact.Cached = verdict, !s.fetched
	if f.Type == "" {
		f.Type = entry.Type
	}
	return Answer{Status: http.StatusOK, Type: f.Type, Size: entry.Size, Digest: f.Digest, Body: content, Ranges: f.Digest != "", Fact: s.fact}, nil
}

// unverifiedMark is the integrity of a stored file that could not be verified. No verified file has
// it, so a policy that requires verification does not get such a file.
const unverifiedMark = "unverified"

// failed returns the refusal for an error of a protocol.
func (s *session) failed(err error) error {
	if f, ok := errors.AsType[*packages.Failure](err); ok {
		status, code := http.StatusBadGateway, "package_document"
		switch {
		case f.Absent:
			status, code = http.StatusNotFound, "package_not_found"
		case f.Unverified:
			status, code = http.StatusForbidden, "package_unverified"
		case f.Rule == packages.RuleIntegrity:
			code = "package_integrity"
		}
		return refuse(status, code, f.Rule, f.Reason, s.fact, f.Cause)
	}
	return err
}

// newest returns the greatest versions, as many as an audit entry may name, in descending order.
func newest(withheld map[string]*packages.Denial) []string {
	list := make([]string, 0, len(withheld))
	for id := range withheld {
		list = append(list, id)
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list[:min(len(list), packages.MaxWithheld)]
}

// noticeOf names a few of the removed versions with their reasons.
func noticeOf(name string, withheld map[string]*packages.Denial) string {
	const maxNamed = 3
	var parts []string
	for _, id := range newest(withheld)[:min(len(withheld), maxNamed)] {
		parts = append(parts, id+": "+withheld[id].Reason)
	}
	text := "crannog withholds versions of " + name + ": " + strings.Join(parts, "; ")
	if len(withheld) > maxNamed {
		text += "; and others"
	}
	return text
}
