package examine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/content"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/packagetest"
	"github.com/crannog/crannog/internal/packages/store"
)

// scanner finds the text "bad".
type scanner struct {
	version string
	err     error
	scans   int
}

func (s *scanner) Ready(context.Context) (string, error) { return s.version, s.err }

func (s *scanner) Scan(_ context.Context, r io.Reader) (string, error) {
	s.scans++
	text, err := io.ReadAll(r)
	if bytes.Contains(text, []byte("bad")) {
		return "Test.Bad", err
	}
	return "", err
}

// cache is a package cache whose results a test sees.
type cache struct {
	*store.Store
	state string
	reads int
}

func (c *cache) Content(ctx context.Context, sum string) (*os.File, int64, error) {
	c.reads++
	return c.Store.Content(ctx, sum)
}

func newCache(t *testing.T) *cache {
	t.Helper()
	state := t.TempDir()
	s, err := store.Open(state, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return &cache{Store: s, state: state}
}

// put stores a file of npm, and returns the request to examine it.
func (c *cache) put(t *testing.T, name, text string) examine.Request {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	r := examine.Request{Artifact: packages.Artifact{Ecosystem: packages.NPM, Name: name, Version: "1.0.0"}, Path: "/" + name + "/-/" + name + "-1.0.0.tgz", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text))}
	e := store.Entry{Key: "https://r.test" + r.Path, Ecosystem: packages.NPM, Name: name, Version: "1.0.0", SHA256: r.SHA256, Size: r.Size, Fetched: time.Now()}
	if err := c.Put(e, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return r
}

func (c *cache) result(sum string) string {
	return filepath.Join(c.state, store.DirName, "results", sum[:2], sum)
}

// P78: A result counts for the same bytes and the same database only.
func TestScansAreKeptByDigestAndDatabase(t *testing.T) {
	c, s, now := newCache(t), &scanner{version: "ClamAV 1/1"}, time.Now()
	clock := func() time.Time { return now }
	texts := map[string]string{"": "good", "Test.Bad": "bad"}
	for found, text := range texts {
		r := c.put(t, "a-"+text, text)
		r.Scan = true
		check := func(when string, scans int) {
			t.Helper()
			before := s.scans
			got, err := examine.New(c, s, clock).Examine(t.Context(), r, strings.NewReader(text))
			if err != nil || got.Found != found || got.Scanner != s.version || s.scans != before+scans {
				t.Errorf("%s, %s: got %+v, %v after %d scans, want %q after %d", text, when, got, err, s.scans-before, found, scans)
			}
		}
		check("the first time", 1)
		check("after a restart", 0)
		s.version += "2"
		check("with another database", 1)
		check("with the same one", 0)
		now = now.Add(2 * time.Hour)
		check("later, because own signatures do not change the version", 1)
		now = now.Add(-3 * time.Hour)
		check("with a result of the future", 1)
		if err := os.WriteFile(c.result(r.SHA256), []byte(`{"sha256":"`+strings.Repeat("0", 64)+`","scan":{"scanner":"`+s.version+`","at":"2020-01-01T00:00:00Z"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		check("with a result about another content", 1)
		if err := os.WriteFile(c.result(r.SHA256), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		check("with a damaged result", 1)
		// The result disappears with the content.
		if _, err := c.Prune(0); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.result(r.SHA256)); !os.IsNotExist(err) {
			t.Errorf("%s: the result outlives the content: %v", text, err)
		}
		check("without the content in the cache", 1)
		check("again, because nothing would remove its result", 1)
	}
}

// Attack: a gateway that was taken over has one file scanned, and names the digest of another, which
// would count as clean for all sandboxes.
func TestResultOfOtherBytesIsNotKept(t *testing.T) {
	c, s := newCache(t), &scanner{version: "v"}
	r := c.put(t, "a", "bad")
	r.Scan = true
	if got, err := examine.New(c, s, time.Now).Examine(t.Context(), r, strings.NewReader("god")); err == nil {
		t.Errorf("other bytes: got %+v, want an error", got)
	}
	if got, err := examine.New(c, s, time.Now).Examine(t.Context(), r, strings.NewReader("bad")); err != nil || got.Found != "Test.Bad" || s.scans != 2 {
		t.Errorf("afterwards: got %+v, %v, want the finding of a scan", got, err)
	}
}

func TestScannerThatFails(t *testing.T) {
	c := newCache(t)
	r := c.put(t, "a", "good")
	r.Scan = true
	s := &scanner{version: "v"}
	if _, err := examine.New(c, s, time.Now).Examine(t.Context(), r, strings.NewReader("good")); err != nil {
		t.Fatal(err)
	}
	s.err = errors.New("down")
	if got, err := examine.New(c, s, time.Now).Examine(t.Context(), r, strings.NewReader("good")); !errors.Is(err, s.err) || got.Scanner != "" {
		t.Errorf("got %+v, %v, want the error, because the database may be another by now", got, err)
	}
}

func TestInspectionsAreKept(t *testing.T) {
	c := newCache(t)
	e := func() *examine.Examiner { return examine.New(c, nil, time.Now) }
	text := packagetest.Tarball(t, "package/../../evil", "x")
	r := c.put(t, "a", text)
	r.Content = true
	check := func(when string, reads int) {
		t.Helper()
		before := c.reads
		got, err := e().Examine(t.Context(), r, strings.NewReader(text))
		if err != nil || !got.Inspected || len(got.Findings) != 1 || got.Findings[0].Code != content.Escape || c.reads != before+reads {
			t.Errorf("%s: got %+v, %v after %d reads, want an escape after %d", when, got, err, c.reads-before, reads)
		}
	}
	check("the first time", 1)
	check("after a restart", 0)
	// A result of another inspection is none.
	stored, err := os.ReadFile(c.result(r.SHA256))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]string{"another revision": content.Revision(), "an unknown finding": `"escape"`, "another content": r.SHA256} {
		changed := bytes.ReplaceAll(stored, []byte(change), []byte(strings.Repeat("a", len(change))))
		if err := os.WriteFile(c.result(r.SHA256), changed, 0o600); err != nil {
			t.Fatal(err)
		}
		check(name, 1)
		check(name+", kept", 0)
	}
	if got, err := e().Examine(t.Context(), examine.Request{Artifact: r.Artifact, Path: r.Path, SHA256: strings.Repeat("0", 64), Content: true}, nil); err != nil || got.Inspected {
		t.Errorf("a content that the cache does not have: got %+v, %v, want no inspection", got, err)
	}
	r.SHA256 = "../../etc/passwd"
	if got, err := e().Examine(t.Context(), r, nil); err == nil {
		t.Errorf("a path instead of a digest: got %+v", got)
	}
}
