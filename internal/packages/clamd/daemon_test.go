package clamd_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/clamd"
	"github.com/crannog/crannog/internal/packages/clamd/clamdtest"
)

// The real daemon finds its signature, also at the end of a content of several chunks.
func TestRealDaemon(t *testing.T) {
	s, err := clamd.New(clamdtest.Start(t, "AlertExceedsMax yes\nStreamMaxLength 1M\n"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := s.Ready(t.Context())
	if err != nil || !strings.HasPrefix(version, "ClamAV 1.") {
		t.Fatalf("Ready: got %q, %v", version, err)
	}
	for name, c := range map[string]struct {
		content io.Reader
		found   string
	}{
		"clean":       {strings.NewReader("nothing"), ""},
		"empty":       {strings.NewReader(""), ""},
		"found":       {strings.NewReader("a " + clamdtest.Signature + " b"), clamdtest.Name},
		"several":     {strings.NewReader(strings.Repeat("a", 300_000) + clamdtest.Signature), clamdtest.Name},
		"large clean": {strings.NewReader(strings.Repeat("a", 300_000)), ""},
	} {
		if found, err := s.Scan(t.Context(), c.content); err != nil || found != c.found {
			t.Errorf("%s: got %q, %v, want %q", name, found, err, c.found)
		}
	}
	// The daemon answers and closes while the client still sends.
	found, err := s.Scan(t.Context(), bytes.NewReader(make([]byte, 8<<20)))
	if fault.CodeOf(err) != "package_scanner" || found != "" {
		t.Errorf("beyond StreamMaxLength: got %q, %v, want an error", found, err)
	}
}

func TestRealDaemonThatHidesItsLimits(t *testing.T) {
	s, err := clamd.New(clamdtest.Start(t, "AlertExceedsMax no\n"))
	if err != nil {
		t.Fatal(err)
	}
	if version, err := s.Ready(t.Context()); !strings.Contains(fault.HintOf(err), "AlertExceedsMax") {
		t.Errorf("got %q, %v, want an error that names AlertExceedsMax", version, err)
	}
}
