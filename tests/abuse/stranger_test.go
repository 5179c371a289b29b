package abuse_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/guest/signature"
)

var strangerAttacks = []attack{
	{name: "clients without a key", run: withoutKey},
	{name: "another key", run: withAnotherKey},
	{name: "signed addresses", run: reuseSignedURLs},
}

var dates = regexp.MustCompile(`(?m)^Date: .*$`)

// withoutKey makes requests without a key or with a wrong one. Answers for existing and missing
// sandboxes must not differ, or they would show which sandboxes exist.
func withoutKey(t *testing.T, b *testSandbox) {
	missingID := strings.Repeat("a", len(b.ID()))
	for _, header := range []string{
		"", "X-Api-Key: \r\n", "X-Api-Key: " + strings.Repeat("0", 44) + "\r\n", "Authorization: Bearer x\r\n",
		"X-Api-Key: e2b_0123456789abcdef0123456789abcdef01234568\r\n", "X-Api-Key: x\r\nX-Api-Key: " + b.environment.Key + "\r\n",
	} {
		for _, request := range []string{
			"GET /sandboxes/ID", "DELETE /sandboxes/ID", "GET /v1/sandboxes/ID", "POST /v1/sandboxes/ID/exec", "POST /sandboxes/ID/timeout",
			"GET /v2/sandboxes/ID/logs", "GET /sandboxes/ID/metrics", "GET /nowhere/ID", "DELETE /v1/keys/ID",
		} {
			exchange := func(id string) (int, string) {
				resp, body := b.environment.exchange(t, strings.Replace(request, "ID", id, 1)+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n")
				return resp.StatusCode, dates.ReplaceAllString(fmt.Sprint(resp.Header), "") + body
			}
			status, real := exchange(b.ID())
			_, other := exchange(missingID)
			if status != http.StatusUnauthorized {
				t.Errorf("%s with the header %q: got %d %s, want 401", request, header, status, real)
			}
			if trimmed := regexp.MustCompile(`Date:\[[^]]*\]`); trimmed.ReplaceAllString(real, "") != trimmed.ReplaceAllString(other, "") {
				t.Errorf("the answers to %s show which sandbox exists:\n%s\n%s", request, real, other)
			}
		}
	}
	requireAnswer(t, b.Sandbox)
}

// withAnotherKey makes requests with a valid key that has no rights to the sandbox.
func withAnotherKey(t *testing.T, b *testSandbox) {
	otherKey, err := b.environment.Local(t).NewKey(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	other, err := crannog.New(crannog.URL(b.environment.URL), crannog.Key(otherKey.Secret))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Version(t.Context()); err != nil {
		t.Errorf("control: %v", err)
	}
	_, real := other.Get(t.Context(), b.ID())
	_, none := other.Get(t.Context(), strings.Repeat("a", len(b.ID())))
	if crannog.Code(real) != "sandbox_not_found" || crannog.Code(none) != "sandbox_not_found" {
		t.Errorf("another key: got %v for an existing and %v for a missing sandbox, want sandbox_not_found for both", real, none)
	}
	if _, err := other.Keys(t.Context()); crannog.Code(err) != "local_only" {
		t.Errorf("list the keys with another key: got %v, want local_only", err)
	}
	for _, option := range []crannog.CreateOption{crannog.Workspace("/etc"), crannog.Forever(), crannog.Ephemeral()} {
		if _, err := other.Create(t.Context(), option); crannog.Code(err) != "local_only" {
			t.Errorf("an option for local users with another key: got %v, want local_only", err)
		}
	}
	if err := b.environment.Local(t).RevokeKey(t.Context(), otherKey.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Version(t.Context()); crannog.Code(err) != "unauthenticated" && err == nil {
		t.Errorf("a revoked key is accepted: %v", err)
	}
}

// reuseSignedURLs uses a signed URL for another path, time, method or sandbox.
func reuseSignedURLs(t *testing.T, b *testSandbox) {
	b.sh(t, "echo first > /tmp/signed; echo first > /tmp/other")
	token := b.Info().AccessToken
	future, past := time.Now().Add(time.Hour).Unix(), time.Now().Add(-time.Minute).Unix()
	get := func(method, path, sig string, expires int64, extra string) int {
		q := url.Values{"path": {path}, "signature": {sig}}
		if expires != 0 {
			q.Set("signature_expiration", fmt.Sprint(expires))
		}
		resp, _ := b.environment.exchange(t, method+" /files?"+q.Encode()+" HTTP/1.1\r\nHost: x\r\n"+extra+"\r\n")
		return resp.StatusCode
	}
	good := signature.Sign("/tmp/signed", signature.Read, "", token, future)
	if got := get("GET", "/tmp/signed", good, future, ""); got != http.StatusOK {
		t.Fatalf("control: %d", got)
	}
	second := b.environment.newSandbox(t, "")
	second.sh(t, "echo second > /tmp/signed")
	otherSandbox := fmt.Sprintf("E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n", second.ID())
	for name, got := range map[string]int{
		"another path":       get("GET", "/tmp/other", good, future, ""),
		"a longer life":      get("GET", "/tmp/signed", good, future+1, ""),
		"no end":             get("GET", "/tmp/signed", good, 0, ""),
		"an end in the past": get("GET", "/tmp/signed", signature.Sign("/tmp/signed", signature.Read, "", token, past), past, ""),
		"writing":            get("POST", "/tmp/signed", good, future, "Content-Length: 0\r\n"),
		"another sandbox":    get("GET", "/tmp/signed", good, future, otherSandbox),
		"no token":           get("GET", "/tmp/signed", signature.Sign("/tmp/signed", signature.Read, "", "", future), future, ""),
	} {
		if got != http.StatusUnauthorized {
			t.Errorf("a signed URL with %s: got %d, want 401", name, got)
		}
	}
	if err := b.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get("GET", "/tmp/signed", good, future, ""); got != http.StatusUnauthorized {
		t.Errorf("a signed URL after its sandbox's end: got %d, want 401", got)
	}
}
