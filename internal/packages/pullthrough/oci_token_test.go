package pullthrough_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// tokenService gives tokens to everybody, or answers in another way.
type tokenService struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []url.Values
	answer func(w http.ResponseWriter)
}

func newTokenService(t *testing.T) *tokenService {
	t.Helper()
	s := &tokenService{answer: func(w http.ResponseWriter) { fmt.Fprint(w, `{"token":"anonymous","expires_in":300}`) }}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the token service got the credentials %q", r.Header.Get("Authorization"))
		}
		s.asked = append(s.asked, r.URL.Query())
		s.answer(w)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *tokenService) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *tokenService) host() string { return strings.TrimPrefix(s.URL, "http://") }

// protect lets the registry serve only clients with a token.
func (r *imageRegistry) protect(challenge, token string) {
	r.inject(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if q.Header.Get("Authorization") == "Bearer "+token {
			return false
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
}

func TestAnonymousTokenIsFetched(t *testing.T) {
	r, service, now := newImageRegistry(t), newTokenService(t), newClock()
	_, _, layer := parts(t, r.push("acme/app", "1.0"))
	_, _, other := parts(t, r.push("acme/other", "1.0"))
	r.protect(`Bearer realm="`+service.URL+`/token?account=x",service="reg,istry",scope="repository:acme/app:pull,push repository:secret/all:pull"`, "anonymous")
	cache := pullthrough.New(newStorage(t), now.now)
	for _, path := range []string{"manifests/1.0", "blobs/" + layer} {
		if _, _, err := r.read(cache, "/v2/acme/app/"+path); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	// The scope is one repository for reading, whatever the registry names.
	want := url.Values{"account": {"x"}, "service": {"reg,istry"}, "scope": {"repository:acme/app:pull"}}
	if service.count() != 1 || service.asked[0].Encode() != want.Encode() {
		t.Errorf("the token service was asked for %v, want once for %v", service.asked, want)
	}
	if _, _, err := r.read(cache, "/v2/acme/other/blobs/"+other); err != nil || service.count() != 2 || service.asked[1].Get("scope") != "repository:acme/other:pull" {
		t.Errorf("another repository: got %v and requests for %v, want a token of its own", err, service.asked)
	}
	now.pass(6 * time.Minute)
	if _, _, err := r.read(cache, "/v2/acme/app/tags/list"); err != nil || service.count() != 3 {
		t.Errorf("after the end of the token: got %v and %d requests, want a new one", err, service.count())
	}
}

func TestTokenServiceThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		challenge func(service *tokenService) string
		answer    string // of the token service
		status    int
		code      string
	}{
		"a password":   {func(*tokenService) string { return `Basic realm="x"` }, "", 0, "package_credentials"},
		"no challenge": {func(*tokenService) string { return "" }, "", 0, "package_credentials"},
		"a password for the token": {
			func(s *tokenService) string { return `Bearer realm="` + s.URL + `/"` }, "", 401, "package_credentials",
		},
		"a token that the registry refuses": {
			func(s *tokenService) string { return `Bearer realm="` + s.URL + `/"` }, `{"token":"other"}`, 200, "package_credentials",
		},
		"no address": {func(*tokenService) string { return `Bearer realm="file:///etc/passwd"` }, "", 0, "package_token"},
		"an address with a password": {
			func(s *tokenService) string { return `Bearer realm="http://a:b@` + s.host() + `/"` }, `{"token":"anonymous"}`, 200, "package_token",
		},
		"a header in the token": {
			func(s *tokenService) string { return `Bearer realm="` + s.URL + `/"` }, `{"token":"anonymous\r\nX-Evil: 1"}`, 200, "package_token",
		},
		"no token": {func(s *tokenService) string { return `Bearer realm="` + s.URL + `/"` }, `{}`, 200, "package_token"},
		"an endless answer": {
			func(s *tokenService) string { return `Bearer realm="` + s.URL + `/"` }, `{"token":"` + strings.Repeat("a", 70<<10) + `"}`, 200, "package_token",
		},
		"a failure": {func(s *tokenService) string { return `Bearer realm="` + s.URL + `/"` }, "", 500, "upstream_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r, service := newImageRegistry(t), newTokenService(t)
			_, _, layer := parts(t, r.push("acme/app", "1.0"))
			service.answer = func(w http.ResponseWriter) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			}
			r.protect(c.challenge(service), "anonymous")
			cache := pullthrough.New(newStorage(t), time.Now)
			_, _, err := r.read(cache, "/v2/acme/app/blobs/"+layer)
			refusedBy(t, name, err, c.code)
			service.answer = func(w http.ResponseWriter) { fmt.Fprint(w, `{"access_token":"anonymous"}`) }
			r.protect(`Bearer realm="`+service.URL+`/"`, "anonymous")
			if _, _, err := r.read(cache, "/v2/acme/app/blobs/"+layer); err != nil {
				t.Errorf("with a token for everybody: %v", err)
			}
		})
	}
}

// A hostile registry chooses where the cache asks for a token and where it redirects. The policy
// decides about both, and no token leaves the registry's own host.
func TestHostileRegistryGetsNothingElsewhere(t *testing.T) {
	r, service, cdn := newImageRegistry(t), newTokenService(t), newImageRegistry(t)
	_, _, layer := parts(t, r.push("acme/app", "1.0"))
	cache := pullthrough.New(newStorage(t), time.Now)
	r.protect(`Bearer realm="`+service.URL+`/"`, "anonymous")
	r.denied[service.host()] = true
	path := "/v2/acme/app/blobs/" + layer
	if _, _, err := r.read(cache, path); !errors.Is(err, errPolicy) || service.count() != 0 {
		t.Errorf("a token service that the policy denies: got %v and %d requests, want the policy's refusal", err, service.count())
	}
	delete(r.denied, service.host())
	// A realm may redirect, which the policy decides about too.
	inner := newTokenService(t)
	service.answer = func(w http.ResponseWriter) {
		w.Header().Set("Location", inner.URL+"/latest/meta-data")
		w.WriteHeader(http.StatusFound)
	}
	r.denied[inner.host()] = true
	if _, _, err := r.read(cache, path); !errors.Is(err, errPolicy) || inner.count() != 0 {
		t.Errorf("a token service that redirects to a denied host: got %v and %d requests there", err, inner.count())
	}
	service.answer = func(w http.ResponseWriter) { fmt.Fprint(w, `{"token":"anonymous"}`) }

	// The blob is on another host.
	text, _, err := func() (string, pullthrough.Answer, error) {
		r.inject(nil)
		return r.read(pullthrough.New(newStorage(t), time.Now), path)
	}()
	if err != nil {
		t.Fatal(err)
	}
	cdn.inject(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if q.Header.Get("Authorization") != "" {
			t.Errorf("the other host got %q", q.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, text)
		return true
	})
	r.inject(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if q.Header.Get("Authorization") != "Bearer anonymous" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+service.URL+`/"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		http.Redirect(w, q, cdn.URL+"/data", http.StatusTemporaryRedirect)
		return true
	})
	r.denied[cdn.host()] = true
	if _, _, err := r.read(cache, path); !errors.Is(err, errPolicy) || !strings.Contains(err.Error(), cdn.host()) || len(cdn.requests()) != 0 {
		t.Errorf("a redirect to a host that the policy denies: got %v, want the policy's refusal with the host", err)
	}
	delete(r.denied, cdn.host())
	if got, _, err := r.read(cache, path); err != nil || got != text || !slices.Equal(cdn.requests(), []string{"GET /data"}) {
		t.Errorf("a redirect to a permitted host: got %d bytes (%v), want the blob", len(got), err)
	}

	// The other host wants a token of its own. The cache does not ask for one.
	asked := service.count()
	cdn.protect(`Bearer realm="`+service.URL+`/"`, "anonymous")
	_, _, err = r.read(pullthrough.New(newStorage(t), time.Now), path)
	refusedBy(t, "a challenge of the other host", err, "upstream_failed")
	if service.count() != asked+1 { // that of the registry itself
		t.Errorf("the token service was asked %d times, want once", service.count()-asked)
	}
}

// sendless is an Upstream that can send no tokens.
type sendless struct{ pullthrough.Upstream }

func TestUpstreamWithoutTokens(t *testing.T) {
	r := newImageRegistry(t)
	r.push("acme/app", "1.0")
	_, _, err := r.read(pullthrough.New(newStorage(t), time.Now), "/v2/acme/app/manifests/1.0", func(q *pullthrough.Request) { q.Upstream = sendless{r} })
	refusedBy(t, "an upstream without tokens", err, "package_request")
}
