package pullthrough

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/content"
	"github.com/crannog/crannog/internal/packages/store"
)

// maxInspected limits how many results of inspections are remembered. Each has at most a few
// kilobytes.
const maxInspected = 4096

// inspection names what was inspected: the bytes, and what they should have been.
type inspection struct {
	sha256 string
	form   content.Form
}

// inspected remembers results of inspections. They depend only on the bytes, so all sandboxes share
// them.
type inspected struct {
	resultMu sync.Mutex
	results  map[inspection][]content.Finding
}

// inspect looks into a verified file. It returns the refusal if the policy refuses what it found.
func (s *session) inspect(ctx context.Context, a packages.Artifact, path string, f *os.File, e store.Entry) error {
	rule := s.request.Content
	if rule == nil {
		return nil
	}
	form, ok := content.FormOf(a, path)
	if !ok {
		return nil
	}
	found, err := s.cache.inspect(ctx, inspection{e.SHA256, form}, func() ([]content.Finding, error) {
		if found, ok := s.cache.kept(ctx, inspection{e.SHA256, form}, a, path, f, e.Size); ok {
			return found, nil
		}
		return content.Inspect(ctx, form, f, e.Size)
	})
	if err != nil {
		return err
	}
	var known []string
	if rule.Known != nil {
		known = rule.Known(a.Ecosystem)
	}
	if near := content.NearName(a, known); near != nil {
		found = append(found[:len(found):len(found)], *near)
	}
	s.fact.Findings = nil
	for _, one := range found {
		s.fact.Findings = append(s.fact.Findings, one.String())
	}
	if len(found) == 0 || !rule.Refuse || rule.Tolerated != nil && rule.Tolerated(a) {
		return nil
	}
	fact := s.fact
	fact.Verdict = packages.Refused
	return &Refusal{
		Denial: packages.Denial{
			Rule: packages.RuleContent, Layer: rule.Layer,
			Reason: a.String() + " has findings, which packages.content of the " + rule.Layer + " layer refuses: " +
				strings.Join(fact.Findings, "; ") + "; packages.tolerated of the policy can permit it",
		},
		Status: http.StatusForbidden, Code: "package_content", Fact: fact,
	}
}

// inspect returns what is wrong with a file. A file is inspected once, and few at the same time,
// because it costs as much as unpacking.
func (c *Cache) inspect(ctx context.Context, of inspection, look func() ([]content.Finding, error)) ([]content.Finding, error) {
	for {
		if found, ok := c.inspected.find(of); ok {
			return found, nil
		}
		var found []content.Finding
		done, err := c.fetchOnce(ctx, "inspect "+of.sha256, func() (err error) {
			if err := c.acquireParser(ctx); err != nil {
				return err
			}
			defer c.releaseParser()
			if found, err = look(); err == nil {
				c.inspected.keep(of, found)
			}
			return err
		})
		if done || err != nil {
			return found, err
		}
	}
}

func (i *inspected) find(of inspection) ([]content.Finding, bool) {
	i.resultMu.Lock()
	defer i.resultMu.Unlock()
	found, ok := i.results[of]
	return found, ok
}

func (i *inspected) keep(of inspection, found []content.Finding) {
	i.resultMu.Lock()
	defer i.resultMu.Unlock()
	if i.results == nil {
		i.results = map[inspection][]content.Finding{}
	}
	for other := range i.results {
		if len(i.results) < maxInspected {
			break
		}
		delete(i.results, other)
	}
	i.results[of] = found
}
