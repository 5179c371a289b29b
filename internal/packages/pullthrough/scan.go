package pullthrough

import (
	"context"
	"net/http"
	"os"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/content"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/store"
)

// Examiner has files examined outside of this process, which reaches no scanner and cannot store
// results. A Storage can be one.
type Examiner interface {
	Examine(ctx context.Context, r examine.Request, file *os.File) (examine.Answer, error)
}

// examined has a file examined. It does not move the file's position.
func (c *Cache) examined(ctx context.Context, r examine.Request, f *os.File) (examine.Answer, error) {
	e, ok := c.storage.(Examiner)
	if !ok {
		return examine.Answer{}, fault.New(fault.Unavailable, "package_scanner", "there is no server that scans files")
	}
	return e.Examine(ctx, r, f)
}

// scan has a verified file scanned. It returns the refusal if something was found, or if the file
// could not be scanned.
func (s *session) scan(ctx context.Context, a packages.Artifact, path string, f *os.File, e store.Entry) error {
	rule := s.request.Scan
	if rule == nil {
		return nil
	}
	refused := func(status int, code, reason string, cause error) error {
		fact := s.fact
		fact.Verdict = packages.Refused
		return &Refusal{
			Denial: packages.Denial{Rule: packages.RuleScan, Layer: rule.Layer, Reason: reason},
			Status: status, Code: code, Fact: fact, Cause: cause,
		}
	}
	got, err := s.cache.examined(ctx, examine.Request{Artifact: a, Path: path, SHA256: e.SHA256, Size: e.Size, Scan: true}, f)
	if err == nil && got.Scanner == "" {
		err = fault.New(fault.Unavailable, "package_scanner", "the server scanned nothing")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		reason := a.String() + " was not scanned, which packages.scan of the " + rule.Layer + " layer requires: " + fault.PublicText(err)
		if hint := fault.HintOf(err); hint != "" {
			reason += "; " + hint
		}
		s.fact.Scan = "not scanned"
		return refused(http.StatusServiceUnavailable, "package_scanner", reason, err)
	}
	if got.Found == "" {
		s.fact.Scan = "clean (" + got.Scanner + ")"
		return nil
	}
	s.fact.Scan = "found " + got.Found + " (" + got.Scanner + ")"
	return refused(http.StatusForbidden, "package_scan",
		a.String()+" was scanned, and "+got.Scanner+" found "+got.Found+" in it, which packages.scan of the "+rule.Layer+" layer refuses", nil)
}

// kept returns the findings that the server has stored about a file, or finds for it. It returns
// false if the server does neither.
func (c *Cache) kept(ctx context.Context, of inspection, a packages.Artifact, path string, f *os.File, size int64) ([]content.Finding, bool) {
	got, err := c.examined(ctx, examine.Request{Artifact: a, Path: path, SHA256: of.sha256, Size: size, Content: true}, f)
	return got.Findings, err == nil && got.Inspected
}
