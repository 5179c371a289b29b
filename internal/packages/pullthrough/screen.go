package pullthrough

import (
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
)

// screen judges versions of packages by their advisories, for one request. A nil screen judges none.
type screen struct {
	cache *Cache
	rule  *packages.AdvisoryRule
	fact  packages.Fact
	// failed is the refusal for a database that cannot be read.
	failed *Refusal
}

// newScreen returns the screen of a request. The request is refused if the policy requires
// advisories and there is no database: without one, each vulnerable version would pass. Images are
// not judged, because no database is about images; the policy warns about it.
func (c *Cache) newScreen(r Request, f packages.Fact) (*screen, error) {
	if r.Advisories == nil || r.Ecosystem == packages.OCI {
		return nil, nil //nolint:nilnil // as the type documents
	}
	s := &screen{cache: c, rule: r.Advisories, fact: f}
	info, err := c.advisories.Info(r.Ecosystem)
	if err != nil {
		return nil, s.unreadable(err)
	}
	if age := r.Advisories.MaxAge; age > 0 && info.Stale(age, c.now()) {
		return nil, s.stale(info)
	}
	return s, nil
}

// unreadable returns the refusal for a database that is missing or damaged.
func (s *screen) unreadable(err error) *Refusal {
	reason := "packages.advisories of the " + s.rule.Layer + " layer needs an advisory database: " + fault.PublicText(err)
	if hint := fault.HintOf(err); hint != "" {
		reason += "; " + hint
	}
	f := s.fact
	f.Verdict = packages.Refused
	return &Refusal{
		Denial: packages.Denial{Rule: packages.RuleAdvisories, Layer: s.rule.Layer, Reason: reason},
		Status: http.StatusForbidden, Code: "package_advisories", Fact: f, Cause: err,
	}
}

// stale returns the refusal for a database that is older than the policy permits: it would let
// versions pass about which there are advisories by now.
func (s *screen) stale(info advisory.Info) *Refusal {
	when := "is of an unknown time"
	if at := info.AsOf(); !at.IsZero() {
		when = "has nothing newer than " + at.UTC().Format("2006-01-02 15:04 UTC")
	}
	f := s.fact
	f.Verdict = packages.Refused
	return &Refusal{
		Denial: packages.Denial{
			Rule: packages.RuleAdvisoryAge, Layer: s.rule.MaxAgeLayer,
			Reason: "the advisory database of " + string(info.Ecosystem) + " " + when + ", and packages.advisories_max_age of the " + s.rule.MaxAgeLayer + " layer is " +
				s.rule.MaxAge.String() + "; download and import it again with crannog cache advisories import",
		},
		Status: http.StatusForbidden, Code: "package_advisories", Fact: f,
	}
}

// judge returns the reason to refuse a version, and the advisories that affect it. After an error,
// each version is refused, and failed is set.
func (s *screen) judge(a packages.Artifact, v packages.Version, metadata bool) (*packages.Denial, []packages.Advisory) {
	if s == nil {
		return nil, nil
	}
	if s.failed == nil {
		found, err := s.cache.advisories.Find(a, v.Origin)
		if err == nil {
			return s.rule.Deny(a, found, metadata), found
		}
		s.failed = s.unreadable(err)
	}
	return &s.failed.Denial, nil
}

// stopped returns the refusal after an error of judge, or nil.
func (s *screen) stopped() error {
	if s == nil || s.failed == nil {
		return nil
	}
	return s.failed
}
