package pullthrough

import (
	"strings"
	"testing"
	"time"
)

func TestParseChallenge(t *testing.T) {
	for header, want := range map[string]challenge{
		`Bearer realm="https://a.test/token",service="a, \"b\"",scope="x"`: {"https://a.test/token", `a, "b"`},
		`bearer Realm=https://a.test/t, Service=b`:                         {"https://a.test/t", "b"},
		`Bearer service="b"`:                         {},
		`Bearer realm="https://a.test`:               {},
		`Bearer realm`:                               {},
		`Basic realm="https://a.test/"`:              {},
		`Bearer realm="` + strings.Repeat("a", 5000): {},
		``: {},
	} {
		got, ok := parseChallenge([]string{`Basic realm="x"`, header})
		if got != want || ok != (want != challenge{}) {
			t.Errorf("%.60q: got %+v %v, want %+v", header, got, ok, want)
		}
	}
}

func TestParseTokenLimitsItsLife(t *testing.T) {
	now := time.Now()
	for answer, life := range map[string]time.Duration{
		`{"token":"a"}`:                        50 * time.Second,
		`{"access_token":"a","expires_in":90}`: 80 * time.Second,
		`{"token":"a","expires_in":1e18}`:      time.Hour - 10*time.Second,
		`{"token":"a","expires_in":-5}`:        50 * time.Second,
	} {
		if got, ok := parseToken([]byte(answer), now); !ok || got.text != "a" || !got.ends.Equal(now.Add(life)) {
			t.Errorf("%s: got %+v %v, want a life of %v", answer, got, ok, life)
		}
	}
	var list tokens
	for i := range 3 * maxTokens {
		list.keep(string(rune('a'+i)), token{"x", now.Add(time.Minute)}, now)
	}
	if len(list.list) > maxTokens {
		t.Errorf("%d tokens are in memory, want at most %d", len(list.list), maxTokens)
	}
	if list.find(string(rune('a'+3*maxTokens-1)), now) != "x" || list.find(string(rune('a'+3*maxTokens-1)), now.Add(time.Hour)) != "" {
		t.Error("the last token is not found, or found after its end")
	}
}

func FuzzParseChallenge(f *testing.F) {
	f.Add(`Bearer realm="https://a.test/token",service="a",scope="x"`)
	f.Add(`Bearer realm=a\,="`)
	f.Fuzz(func(t *testing.T, header string) {
		c, ok := parseChallenge([]string{header})
		if ok && (c.realm == "" || len(c.realm)+len(c.service) > len(header)) {
			t.Errorf("%q: got %+v", header, c)
		}
	})
}
