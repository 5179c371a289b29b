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
	{name: "strangers", run: strangers},
	{name: "another key", run: anotherKey},
	{name: "signed addresses", run: signedAddresses},
}

var dates = regexp.MustCompile(`(?m)^Date: .*$`)

// strangers have no key or a wrong one. Existing and missing things must look the same to them.
func strangers(t *testing.T, b *testSandbox) {
	nobody := strings.Repeat("a", len(b.ID()))
	for _, header := range []string{
		"", "X-Api-Key: \r\n", "X-Api-Key: " + strings.Repeat("0", 44) + "\r\n", "Authorization: Bearer x\r\n",
		"X-Api-Key: e2b_0123456789abcdef0123456789abcdef01234568\r\n", "X-Api-Key: x\r\nX-Api-Key: " + b.environment.Key + "\r\n",
	} {
		for _, request := range []string{
			"GET /sandboxes/ID", "DELETE /sandboxes/ID", "GET /v1/sandboxes/ID", "POST /v1/sandboxes/ID/exec", "POST /sandboxes/ID/timeout",
			"GET /v2/sandboxes/ID/logs", "GET /sandboxes/ID/metrics", "GET /nowhere/ID", "DELETE /v1/keys/ID",
		} {
			ask := func(id string) (int, string) {
				resp, body := b.environment.ask(t, strings.Replace(request, "ID", id, 1)+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n")
				return resp.StatusCode, dates.ReplaceAllString(fmt.Sprint(resp.Header), "") + body
			}
			status, real := ask(b.ID())
			_, other := ask(nobody)
			if status != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d %s", request, header, status, real)
			}
			if trimmed := regexp.MustCompile(`Date:\[[^]]*\]`); trimmed.ReplaceAllString(real, "") != trimmed.ReplaceAllString(other, "") {
				t.Errorf("%s tells what exists:\n%s\n%s", request, real, other)
			}
		}
	}
	answers(t, b.Sandbox)
}

// anotherKey is a client with a valid key and no right to the sandbox.
func anotherKey(t *testing.T, b *testSandbox) {
	made, err := b.environment.Local(t).NewKey(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	other, err := crannog.New(crannog.URL(b.environment.URL), crannog.Key(made.Secret))
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
		t.Errorf("%v, %v", real, none)
	}
	if _, err := other.Keys(t.Context()); crannog.Code(err) != "local_only" {
		t.Errorf("%v", err)
	}
	for _, option := range []crannog.CreateOption{crannog.Workspace("/etc"), crannog.Forever(), crannog.Ephemeral()} {
		if _, err := other.Create(t.Context(), option); crannog.Code(err) != "local_only" {
			t.Errorf("%v", err)
		}
	}
	if err := b.environment.Local(t).RevokeKey(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Version(t.Context()); crannog.Code(err) != "unauthenticated" && err == nil {
		t.Errorf("a revoked key is good: %v", err)
	}
}

// signedAddresses are signed URLs that are used for something else.
func signedAddresses(t *testing.T, b *testSandbox) {
	b.sh(t, "echo mine > /tmp/signed; echo mine > /tmp/other")
	token := b.Info().AccessToken
	later, before := time.Now().Add(time.Hour).Unix(), time.Now().Add(-time.Minute).Unix()
	get := func(method, path, sig string, expires int64, extra string) int {
		q := url.Values{"path": {path}, "signature": {sig}}
		if expires != 0 {
			q.Set("signature_expiration", fmt.Sprint(expires))
		}
		resp, _ := b.environment.ask(t, method+" /files?"+q.Encode()+" HTTP/1.1\r\nHost: x\r\n"+extra+"\r\n")
		return resp.StatusCode
	}
	good := signature.Sign("/tmp/signed", signature.Read, "", token, later)
	if got := get("GET", "/tmp/signed", good, later, ""); got != http.StatusOK {
		t.Fatalf("control: %d", got)
	}
	second := b.environment.newSandbox(t, "")
	second.sh(t, "echo theirs > /tmp/signed")
	elsewhere := fmt.Sprintf("E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n", second.ID())
	for name, got := range map[string]int{
		"another path":    get("GET", "/tmp/other", good, later, ""),
		"a longer life":   get("GET", "/tmp/signed", good, later+1, ""),
		"no end":          get("GET", "/tmp/signed", good, 0, ""),
		"an end that was": get("GET", "/tmp/signed", signature.Sign("/tmp/signed", signature.Read, "", token, before), before, ""),
		"writing":         get("POST", "/tmp/signed", good, later, "Content-Length: 0\r\n"),
		"another sandbox": get("GET", "/tmp/signed", good, later, elsewhere),
		"no token":        get("GET", "/tmp/signed", signature.Sign("/tmp/signed", signature.Read, "", "", later), later, ""),
	} {
		if got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
	if err := b.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get("GET", "/tmp/signed", good, later, ""); got != http.StatusUnauthorized {
		t.Errorf("after its sandbox's end: %d", got)
	}
}
