package key_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/store"
)

func newRing(t *testing.T) (*key.Ring, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return ringOn(t, s, discardEntry), dir
}

func ringOn(t *testing.T, s *store.Store, record key.Recorder) *key.Ring {
	t.Helper()
	return key.NewRing(s, slog.New(slog.NewTextHandler(t.Output(), nil)), record)
}

// discardEntry is a recorder that accepts every entry and stores none.
func discardEntry(context.Context, audit.Kind, key.Key) error {
	return nil
}

func TestKeyLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, dir := newRing(t)
		ctx := t.Context()
		secret, k, err := ring.Create(ctx, "ci")
		if err != nil || !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(secret) || !regexp.MustCompile(`^k[0-9a-z]{19}$`).MatchString(k.ID) {
			t.Fatalf("Create: got secret %q, key %+v, error %v", secret, k, err)
		}
		other, _, err := ring.Create(ctx, "")
		if err != nil || other == secret {
			t.Fatalf("Create of a second key: %v", err)
		}
		if got, err := ring.Verify(ctx, secret); err != nil || got.ID != k.ID || got.Name != "ci" {
			t.Errorf("Verify: got %+v, error %v", got, err)
		}
		first := time.Now()
		for range 5 {
			time.Sleep(10 * time.Second)
			if _, err := ring.Verify(ctx, secret); err != nil {
				t.Error(err)
			}
		}
		keys, err := ring.List(ctx)
		if err != nil || len(keys) != 2 {
			t.Fatalf("List: got %+v, error %v, want two keys", keys, err)
		}
		for _, listed := range keys {
			if listed.ID == k.ID && !listed.LastUsed.Equal(first) {
				t.Errorf("LastUsed: got %v, want %v, because it is precise to the minute", listed.LastUsed, first)
			}
			if listed.ID != k.ID && !listed.LastUsed.IsZero() {
				t.Errorf("LastUsed of an unused key: got %v, want zero", listed.LastUsed)
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil || strings.Contains(string(data), secret) || strings.Contains(string(data), secret[4:]) {
				t.Errorf("%s holds the secret, or %v", file, err)
			}
		}
		if got, err := ring.Revoke(ctx, "ci"); err != nil || got.ID != k.ID {
			t.Errorf("Revoke: got %+v, error %v", got, err)
		}
		if _, err := ring.Verify(ctx, other); err != nil {
			t.Errorf("Verify of the other key: %v", err)
		}
		_, err = ring.Verify(ctx, secret)
		if fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("Verify of a revoked key: got %v, want Unauthenticated", err)
		}
	})
}

// P1: all invalid keys give the same answer.
func TestInvalidKeysGetSameError(t *testing.T) {
	ring, _ := newRing(t)
	secret, _, err := ring.Create(t.Context(), "ci")
	if err != nil {
		t.Fatal(err)
	}
	flipped := []byte(secret)
	flipped[len(flipped)-1] ^= 1
	var texts []string
	for _, wrong := range []string{
		"", "e2b_", string(flipped), strings.ToUpper(secret), secret[:43], secret + "0", secret + "\n", " " + secret,
		"e2b_" + strings.Repeat("0", 40), "e2b_" + strings.Repeat("g", 40), "' OR 1=1 --", strings.Repeat("a", 1<<20),
	} {
		_, err := ring.Verify(t.Context(), wrong)
		if fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("Verify(%.60q): got %v, want Unauthenticated", wrong, err)
		}
		texts = append(texts, fault.PublicText(err)+fault.CodeOf(err)+fault.HintOf(err))
	}
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("answers differ: %q and %q", text, texts[0])
		}
	}
}

func TestAdopt(t *testing.T) {
	ring, _ := newRing(t)
	given := "e2b_" + strings.Repeat("5", 40)
	first, err := ring.Adopt(t.Context(), "given", given)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ring.Adopt(t.Context(), "given", given); err != nil || again.ID != first.ID {
		t.Errorf("second Adopt: got %+v, error %v, want the first key", again, err)
	}
	if got, err := ring.Verify(t.Context(), given); err != nil || got.ID != first.ID {
		t.Errorf("Verify of the adopted key: got %+v, error %v", got, err)
	}
	if _, err := ring.Adopt(t.Context(), "given", "hunter2"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Adopt of a secret of another form: got %v, want Invalid", err)
	}
}

func TestRevokeAndNames(t *testing.T) {
	ring, _ := newRing(t)
	ctx := t.Context()
	for _, bad := range []string{strings.Repeat("x", 65), "a\nb", "\x1b[2J", "\xff"} {
		if _, _, err := ring.Create(ctx, bad); fault.CodeOf(err) != "key_name_invalid" {
			t.Errorf("Create(%q): got %v, want key_name_invalid", bad, err)
		}
	}
	_, a, err := ring.Create(ctx, "twin")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ring.Create(ctx, "twin"); err != nil {
		t.Fatal(err)
	}
	for ref, code := range map[string]string{"twin": "key_ambiguous", "none": "key_not_found", "": "key_not_found"} {
		if _, err := ring.Revoke(ctx, ref); fault.CodeOf(err) != code {
			t.Errorf("revoke %q: %v, want %s", ref, err, code)
		}
	}
	if got, err := ring.Revoke(ctx, a.ID); err != nil || got.ID != a.ID {
		t.Errorf("Revoke by ID: got %+v, error %v", got, err)
	}
	if _, err := ring.Revoke(ctx, "twin"); err != nil {
		t.Errorf("Revoke by a name that is unique by now: %v", err)
	}
}

// A key is neither created nor revoked if the audit log rejects the entry.
func TestKeyChangesNeedAuditEntry(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var refuse error
	var entries []string
	ring := ringOn(t, s, func(_ context.Context, kind audit.Kind, k key.Key) error {
		entries = append(entries, string(kind)+" "+k.Name)
		return refuse
	})
	_, kept, err := ring.Create(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	refuse = errors.New("the record cannot be written")
	if _, _, err := ring.Create(t.Context(), "other"); !errors.Is(err, refuse) {
		t.Errorf("Create without an audit entry: got %v", err)
	}
	if _, err := ring.Adopt(t.Context(), "given", key.Prefix+strings.Repeat("a", 40)); !errors.Is(err, refuse) {
		t.Errorf("Adopt without an audit entry: got %v", err)
	}
	if _, err := ring.Revoke(t.Context(), "kept"); !errors.Is(err, refuse) {
		t.Errorf("Revoke without an audit entry: got %v", err)
	}
	keys, err := ring.List(t.Context())
	if err != nil || len(keys) != 1 || keys[0].ID != kept.ID {
		t.Errorf("List: got %+v, error %v, want only the first key", keys, err)
	}
	if got := strings.Join(entries, ", "); got != "key.made kept, key.made other, key.made given, key.revoked kept" {
		t.Errorf("got audit entries %s", got)
	}
}

// P39: a key for MCP is valid for nothing else, and a key without a stored purpose is valid for
// nothing.
func TestAgentKeys(t *testing.T) {
	ring, _ := newRing(t)
	ctx := t.Context()
	full, _, err := ring.CreateFor(ctx, "whole", key.API)
	if err != nil {
		t.Fatal(err)
	}
	agent, made, err := ring.CreateFor(ctx, "agent", key.MCP)
	if err != nil || made.Opens != key.MCP {
		t.Fatalf("CreateFor(mcp): got %+v, error %v", made, err)
	}
	for _, c := range []struct {
		secret  string
		purpose key.Opens
		want    fault.Kind
	}{
		{full, key.API, ""},
		{full, key.MCP, ""},
		{agent, key.MCP, ""},
		{agent, key.API, fault.Denied},
		{agent, "", fault.Denied},
		{"e2b_" + strings.Repeat("0", 40), key.MCP, fault.Unauthenticated},
	} {
		k, err := ring.VerifyAt(ctx, c.secret, c.purpose)
		if c.want == "" && err != nil || c.want != "" && (fault.KindOf(err) != c.want || k.ID != "") {
			t.Errorf("VerifyAt(%q): got %+v, error %v, want kind %q", c.purpose, k, err, c.want)
		}
	}
	if k, err := ring.Verify(ctx, agent); fault.CodeOf(err) != "key_for_mcp" {
		t.Errorf("Verify of a key for MCP: got %+v, error %v, want key_for_mcp", k, err)
	}
	if k, err := ring.Adopt(ctx, "adopted", agent); fault.CodeOf(err) != "key_for_mcp" {
		t.Errorf("Adopt of a key for MCP: got %+v, error %v, want key_for_mcp", k, err)
	}
	for _, bad := range []key.Opens{"", "all", "mcp,api"} {
		if _, _, err := ring.CreateFor(ctx, "bad", bad); fault.CodeOf(err) != "key_opens_invalid" {
			t.Errorf("CreateFor(%q): got %v, want key_opens_invalid", bad, err)
		}
	}
}
