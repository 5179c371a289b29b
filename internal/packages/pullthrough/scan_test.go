package pullthrough_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	found "github.com/crannog/crannog/internal/packages/content"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/packagetest"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// examining is a storage whose server examines files with a function.
type examining struct {
	*storage
	do    func(r examine.Request) (examine.Answer, error)
	asked int
}

func (e *examining) Examine(_ context.Context, r examine.Request, f *os.File) (examine.Answer, error) {
	e.asked++
	if info, err := f.Stat(); err != nil || info.Size() != r.Size {
		return examine.Answer{}, errors.New("the file is not the one of the request")
	}
	return e.do(r)
}

func scanned(r *pullthrough.Request) { r.Scan = &packages.ScanRule{Layer: "project"} }

// P76: Each file is scanned before it is passed on, in every ecosystem.
func TestFilesAreScannedBeforeTheyArePassedOn(t *testing.T) {
	r := newRegistry(t)
	r.npm("a", version{"1.0.0", "one", 90 * day})
	const file = "/a/-/a-1.0.0.tgz"
	s := &examining{storage: newStorage(t)}
	c := pullthrough.New(s, time.Now)
	for name, one := range map[string]struct {
		answer examine.Answer
		err    error
		status int // of the refusal; 0 without one
		reason string
	}{
		"clean":                 {examine.Answer{Scanner: "v1"}, nil, 0, "clean (v1)"},
		"found":                 {examine.Answer{Scanner: "v1", Found: "X.Y"}, nil, http.StatusForbidden, "found X.Y (v1)"},
		"failed":                {examine.Answer{}, errors.New("down"), http.StatusServiceUnavailable, "not scanned"},
		"answer without a scan": {examine.Answer{}, nil, http.StatusServiceUnavailable, "not scanned"},
	} {
		s.do = func(examine.Request) (examine.Answer, error) { return one.answer, one.err }
		text, a, err := get(t, c, r, file, scanned)
		fact := a.Fact
		stop, refused := errors.AsType[*pullthrough.Refusal](err)
		if refused {
			fact = stop.Fact
		}
		if refused != (one.status != 0) || !refused && (err != nil || text != "one") || refused && (stop.Status != one.status || stop.Rule != packages.RuleScan || stop.Layer != "project") {
			t.Errorf("%s: got %q, %v, want the status %d", name, text, err, one.status)
		}
		if fact.Scan != one.reason {
			t.Errorf("%s: the fact has the scan %q, want %q", name, fact.Scan, one.reason)
		}
	}
	before := s.asked
	if text, a, err := get(t, c, r, file); err != nil || text != "one" || a.Fact.Scan != "" || s.asked != before {
		t.Errorf("control, without the setting: got %+v, %v after %d scans", a.Fact, err, s.asked-before)
	}
	if _, _, err := get(t, pullthrough.New(newStorage(t), time.Now), r, file, scanned); err == nil || !strings.Contains(err.Error(), "no server that scans") {
		t.Errorf("without a server: got %v", err)
	}
	for name, e := range protocols {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			e.publish(t, r)
			s := &examining{storage: newStorage(t), do: func(r examine.Request) (examine.Answer, error) { return examine.Answer{Scanner: "v1", Found: "X"}, nil }}
			c := pullthrough.New(s, time.Now)
			if _, _, err := get(t, c, r, e.document, of(e.ecosystem)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := get(t, c, r, e.old, of(e.ecosystem), scanned); err == nil || !strings.Contains(err.Error(), "found X") {
				t.Errorf("got %v, want the finding", err)
			}
		})
	}
}

// The findings of the server count as those of this process. Without them, the process looks itself.
func TestStoredFindingsAreUsed(t *testing.T) {
	r := newRegistry(t)
	good, bad := packagetest.Tarball(t, "package/index.js", "x"), packagetest.Tarball(t, "package/../../evil", "x")
	r.npm("a", version{"1.0.0", good, 90 * day}, version{"2.0.0", bad, 90 * day})
	refuse := contentRule(packages.ContentRule{Refuse: true})
	s := &examining{storage: newStorage(t)}
	s.do = func(examine.Request) (examine.Answer, error) {
		return examine.Answer{Inspected: true, Findings: []found.Finding{{Code: found.Bomb, Details: []string{"x"}}}}, nil
	}
	_, _, err := get(t, pullthrough.New(s, time.Now), r, "/a/-/a-1.0.0.tgz", refuse)
	wantFinding(t, "the server's finding", err, "bomb")
	for name, err := range map[string]error{"the server fails": errors.New("down"), "the server does not have the file": nil} {
		s.do = func(examine.Request) (examine.Answer, error) { return examine.Answer{}, err }
		_, _, err := get(t, pullthrough.New(s, time.Now), r, "/a/-/a-2.0.0.tgz", refuse)
		wantFinding(t, name, err, "escape")
		if _, _, err := get(t, pullthrough.New(s, time.Now), r, "/a/-/a-1.0.0.tgz", refuse); err != nil {
			t.Errorf("%s, a file without findings: %v", name, err)
		}
	}
}

// P77: A database that is too old refuses what it knows nothing about.
func TestOldAdvisoriesRefuse(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.npm("a", version{"1.0.0", "one", 900 * day})
	s.advise(t, "GHSA-1", "HIGH", "npm", "other") // modified at the beginning of 2026
	modified := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	aged := func(age time.Duration) func(*pullthrough.Request) {
		return func(r *pullthrough.Request) {
			r.Advisories = &packages.AdvisoryRule{Level: packages.SeverityHigh, Layer: "task", MaxAge: age, MaxAgeLayer: "organisation"}
		}
	}
	for _, path := range []string{"/a", "/a/-/a-1.0.0.tgz"} {
		now := modified.Add(23 * time.Hour)
		c := pullthrough.New(s, func() time.Time { return now })
		if _, _, err := get(t, c, r, path, aged(24*time.Hour)); err != nil {
			t.Errorf("%s: a fresh database: %v", path, err)
		}
		now = modified.Add(25 * time.Hour)
		_, _, err := get(t, c, r, path, aged(24*time.Hour))
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleAdvisoryAge || stop.Layer != "organisation" || !strings.Contains(stop.Reason, "2026-01-01") {
			t.Errorf("%s: an old database: got %v", path, err)
		}
		if _, _, err := get(t, c, r, path, aged(0)); err != nil {
			t.Errorf("%s: control, without a limit: %v", path, err)
		}
	}
}
