package pullthrough

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// Registries of images give their content only to clients with a token, also where everybody may
// have one. The cache gets such a token without credentials, for reading one repository. It never
// uses a token of a sandbox, because the answers are shared.

// Fetch is a request to a registry.
type Fetch struct {
	Method, URL, Accept string
	// Token is sent to the origin of URL, and not to where the registry redirects.
	Token string
}

// Authorized is an Upstream that can send tokens.
type Authorized interface {
	Upstream
	// Send sends a request, as far as the sandbox's policy allows it. Its answer has the request
	// that was answered, after redirects.
	Send(ctx context.Context, f Fetch) (*http.Response, error)
}

// Limits of tokens.
const (
	maxTokens      = 256 // in memory
	maxToken       = 16 << 10
	maxTokenAnswer = 64 << 10
	// Life of a token whose registry does not say it, the longest one, and how long before its end
	// it is not used any more.
	usualTokenLife = time.Minute
	maxTokenLife   = time.Hour
	tokenReserve   = 10 * time.Second
)

// token is a token for reading one repository.
type token struct {
	text string
	ends time.Time
}

// tokens are the tokens by repository. The key has the origin of the registry that asked for it, so
// no other one gets it.
type tokens struct {
	mu   sync.Mutex
	list map[string]token
}

func (t *tokens) find(key string, now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.list[key]; now.Before(found.ends) {
		return found.text
	}
	return ""
}

func (t *tokens) keep(key string, found token, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list == nil {
		t.list = map[string]token{}
	}
	for other, o := range t.list {
		if len(t.list) >= maxTokens || !now.Before(o.ends) {
			delete(t.list, other)
		}
	}
	t.list[key] = found
}

// send sends a request to a registry, with a token if the registry wants one.
func (c *Cache) send(ctx context.Context, r Request, e store.Entry, f Fetch) (*http.Response, error) {
	if r.Ecosystem != packages.OCI {
		return r.Upstream.Get(ctx, f.URL, f.Accept)
	}
	fact := packages.Fact{Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version}
	up, ok := r.Upstream.(Authorized)
	if !ok || !strings.HasPrefix(f.URL, r.Origin+"/v2/") {
		return nil, refuse(http.StatusServiceUnavailable, "package_request", packages.RuleRequest, "registries of images cannot be asked from here", fact, nil)
	}
	// The name begins with the host.
	_, repository, _ := strings.Cut(e.Name, "/")
	key := r.Origin + " " + repository
	f.Token = c.tokens.find(key, c.now())
	resp, err := up.Send(ctx, f)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !answeredBy(resp, r.Origin) {
		return resp, err
	}
	header := resp.Header.Values("Www-Authenticate")
	resp.Body.Close()
	got, err := c.fetchToken(ctx, up, r.Origin, repository, header, fact)
	if err != nil {
		return nil, err
	}
	f.Token = got.text
	if resp, err = up.Send(ctx, f); err != nil {
		return nil, err
	}
	if (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) && answeredBy(resp, r.Origin) {
		resp.Body.Close()
		return nil, needsCredentials(fact, "it does not accept the token that everybody gets")
	}
	c.tokens.keep(key, got, c.now())
	return resp, nil
}

// answeredBy reports whether an answer is that of an origin. The server to which a registry
// redirects must not choose where the cache gets a token.
func answeredBy(resp *http.Response, origin string) bool {
	return resp.Request != nil && resp.Request.URL != nil && resp.Request.URL.Scheme+"://"+resp.Request.URL.Host == origin
}

// needsCredentials returns the refusal for a repository that not everybody may read.
func needsCredentials(f packages.Fact, why string) error {
	return refuse(http.StatusForbidden, "package_credentials", packages.RuleRequest,
		"the registry does not give "+f.Name+" to clients without credentials, or does not have it ("+why+
			"); the cache sends no credentials, because its answers are shared", f, nil)
}

// fetchToken gets a token for reading a repository from the service that a registry names.
func (c *Cache) fetchToken(ctx context.Context, up Authorized, origin, repository string, header []string, fact packages.Fact) (token, error) {
	ask, ok := parseChallenge(header)
	if !ok {
		return token{}, needsCredentials(fact, "it asks for a password")
	}
	at, err := url.Parse(ask.realm)
	// A service without TLS could be read and replaced on the way.
	if err != nil || at.Host == "" || at.User != nil || at.Scheme != "https" && (at.Scheme != "http" || !strings.HasPrefix(origin, "http://")) {
		return token{}, refuse(http.StatusBadGateway, "package_token", packages.RuleRequest, "the registry names a token service that is not reached over https", fact, nil)
	}
	// The scope is not the one that the registry names, which may ask for more.
	query := at.Query()
	query.Set("scope", "repository:"+repository+":pull")
	if ask.service != "" {
		query.Set("service", ask.service)
	}
	at.RawQuery, at.Fragment = query.Encode(), ""
	resp, err := up.Send(ctx, Fetch{Method: http.MethodGet, URL: at.String()})
	if err != nil {
		return token{}, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return token{}, needsCredentials(fact, "its token service at "+at.Host+" wants a password")
	default:
		return token{}, refuse(http.StatusBadGateway, "upstream_failed", packages.RuleRequest, "the token service at "+at.Host+" answered "+resp.Status, fact, nil)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer+1))
	if err != nil {
		return token{}, broken(err, fact)
	}
	got, ok := parseToken(text, c.now())
	if !ok {
		return token{}, refuse(http.StatusBadGateway, "package_token", packages.RuleRequest, "the token service at "+at.Host+" sent no token", fact, nil)
	}
	return got, nil
}

// parseToken reads the answer of a token service.
func parseToken(text []byte, now time.Time) (token, bool) {
	var answer struct {
		Token   string  `json:"token"`
		Access  string  `json:"access_token"`
		Seconds float64 `json:"expires_in"`
	}
	if len(text) > maxTokenAnswer || json.Unmarshal(text, &answer) != nil {
		return token{}, false
	}
	if answer.Token == "" {
		answer.Token = answer.Access
	}
	// Other bytes could add a header to a request.
	if answer.Token == "" || len(answer.Token) > maxToken || strings.ContainsFunc(answer.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return token{}, false
	}
	life := usualTokenLife
	if answer.Seconds > 0 {
		life = time.Duration(min(answer.Seconds, maxTokenLife.Seconds()) * float64(time.Second))
	}
	return token{answer.Token, now.Add(life - tokenReserve)}, true
}
