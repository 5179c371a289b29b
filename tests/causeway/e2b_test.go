package causeway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// served is a server of the product with a fake internet. Tests drive it like E2B's clients.
type served struct {
	*servetest.Server
	*internet
	t       testing.TB
	program string
	state   string
}

func newServed(t testing.TB) *served {
	t.Helper()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	s := &served{internet: w, t: t, program: program(t), state: hosttest.ShortDir(t)}
	if err := w.write(s.state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := awaitCauseway(s.state); err != nil {
			t.Error(err)
		}
	})
	s.Server = servetest.Start(t, s.program, s.state)
	return s
}

// call makes a call of E2B's control plane that must succeed.
func (s *served) call(method, path, body string) map[string]any {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", s.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s\n%s", method, path, res.StatusCode, data, s.Stderr())
	}
	var out map[string]any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &out); err != nil {
			s.t.Fatal(err)
		}
	}
	return out
}

// create creates a sandbox and kills it when the test ends.
func (s *served) create(fields string) string {
	s.t.Helper()
	id := s.call("POST", "/v2/sandboxes", `{"templateID":"base"`+fields+`}`)["sandboxID"].(string)
	s.killAtEnd(id)
	sb, err := s.Client(s.t).Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := sb.FS().WithContext(s.t.Context()).WriteFile("tmp/world.pem", s.Roots, 0o644); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// killAtEnd kills a sandbox when the test ends.
func (s *served) killAtEnd(id string) {
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience(hosttest.Hang))
		defer cancel()
		if sb, err := s.Local(s.t).Get(ctx, id); err == nil {
			if err := sb.Kill(ctx); err != nil {
				s.t.Error(err)
			}
		}
	})
}

// curl requests a page from inside. Hosts that the gateway does not decrypt need trustOutside.
func (s *served) curl(id, url string, more ...string) (string, bool) {
	s.t.Helper()
	sb, err := s.Client(s.t).Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := sb.Exec(s.t.Context(), api.Exec{Cmd: append([]string{"curl", "-fsS", "-m", "300", url}, more...), TimeoutSeconds: 1200})
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Stdout + res.Stderr, res.ExitCode == 0
}

// trustOutside makes curl trust the authority of the fake internet instead of the gateway's.
var trustOutside = []string{"--cacert", "/tmp/world.pem"}

// countOwnSecrets returns the number of stored secrets that belong to one sandbox alone.
func (s *served) countOwnSecrets(id string) int {
	s.t.Helper()
	st, err := store.Open(s.t.Context(), s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	list, err := st.Secrets(s.t.Context(), "sandbox:"+id)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list)
}

// filesContaining returns the files of the state directory that contain a text.
func (s *served) filesContaining(text string) []string {
	s.t.Helper()
	return slices.DeleteFunc(hosttest.Holding(s.t, s.state, text), func(path string) bool { return filepath.Base(path) == internetFile })
}

// Headers of E2B's rules reach only the host that they are for. Their values are not in the sandbox
// and not on disk in plain text. They survive a restart, and are removed with their rule or their
// sandbox.
func TestE2BRulesSetHeadersAndF26RedactsReflection(t *testing.T) {
	need(t)
	t.Parallel()
	s := newServed(t)
	echo := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "got "+r.Header.Get("Authorization")+" and "+r.Header.Get("X-Fixed")+" and "+r.Header.Get("X-Team"))
	}
	good, other := s.web(t, 443, echo, "api.good.test"), s.web(t, 443, echo, "other.test")
	const sealed, fixed = "canary-Zq91-of-the-vault", "canary-Zq92-of-a-rule"
	s.call("POST", "/secrets", `{"name":"KEY","value":"`+sealed+`"}`)
	rules := `"rules":{"api.good.test":[{"transform":{"headers":{"Authorization":"Bearer ${e2b.secrets.KEY}","X-Fixed":"` + fixed + `","X-Team":"blue"}}}]}`
	lists := `"allowOut":["api.good.test","other.test"],"denyOut":["0.0.0.0/0"]`
	id := s.create(`,"network":{` + lists + `,` + rules + `}`)

	requireHeaders := func(auth, fixed, team string) {
		t.Helper()
		before := len(good.seen())
		out, ok := s.curl(id, "https://api.good.test/")
		seen := good.seen()
		if !ok || len(seen) != before+1 {
			t.Fatalf("the request to api.good.test failed: %s\n%s", out, s.Stderr())
		}
		h := seen[before].Header
		if h.Get("Authorization") != auth || h.Get("X-Fixed") != fixed || h.Get("X-Team") != team {
			t.Errorf("the host got the headers %v", h)
		}
		// F26: a value that a rule sets is redacted in the answer, unless it is too short for a
		// secret.
		stars := func(value string) string { return strings.Repeat("*", len(value)) }
		scheme, key, _ := strings.Cut(auth, " ")
		want := "got " + strings.TrimSpace(scheme+" "+stars(key)) + " and " + stars(fixed) + " and " + team
		if strings.Contains(out, "canary") || strings.TrimSpace(out) != strings.TrimSpace(want) {
			t.Errorf("the sandbox reads %q, want %q", out, want)
		}
	}
	requireHeaders("Bearer "+sealed, fixed, "blue")
	if out, ok := s.curl(id, "https://other.test/", trustOutside...); !ok || out != "got  and  and " || len(other.seen()) != 1 {
		t.Errorf("another host got headers of the rule: %v %q", ok, out)
	}
	for _, value := range []string{sealed, fixed} {
		if found := s.filesContaining(value); len(found) > 0 {
			t.Errorf("the value is in %v", found)
		}
	}
	// Control: the search would find the value.
	if len(s.filesContaining("api.good.test")) == 0 {
		t.Error("the search finds no text at all")
	}

	// A restarted server reads all values from the database: rotating one of them makes it send all
	// to the gateway again.
	s.Kill()
	s.Server = servetest.Start(t, s.program, s.state)
	s.call("POST", "/secrets/KEY", `{"value":"`+sealed+`-2"}`)
	requireHeaders("Bearer "+sealed+"-2", fixed, "blue")
	if n := s.countOwnSecrets(id); n != 1 {
		t.Errorf("got %d own secrets after the restart, want 1", n)
	}
	s.call("PUT", "/sandboxes/"+id+"/network", `{`+lists+`,"rules":{"api.good.test":[{"transform":{"headers":{"X-Fixed":"`+fixed+`-3"}}}]}}`)
	requireHeaders("", fixed+"-3", "")
	if n := s.countOwnSecrets(id); n != 1 {
		t.Errorf("got %d own secrets after a change, want 1", n)
	}
	s.call("PUT", "/sandboxes/"+id+"/network", `{`+lists+`}`)
	if out, ok := s.curl(id, "https://api.good.test/", trustOutside...); !ok || out != "got  and  and " {
		t.Errorf("without rules: %v %q", ok, out)
	}
	if n := s.countOwnSecrets(id); n != 0 {
		t.Errorf("got %d own secrets without rules, want 0", n)
	}
	s.call("PUT", "/sandboxes/"+id+"/network", `{`+lists+`,`+rules+`}`)
	s.call("DELETE", "/sandboxes/"+id, "")
	if n := s.countOwnSecrets(id); n != 0 {
		t.Errorf("got %d own secrets after the sandbox's removal, want 0", n)
	}
}

// Lists apply from the next request on, to a name by the addresses that it resolves to. A sandbox
// that was created without internet access can be given some later.
func TestE2BListsApplyFromNextRequest(t *testing.T) {
	need(t)
	t.Parallel()
	s := newServed(t)
	a, b := s.web(t, 443, nil, "a.test"), s.web(t, 443, nil, "b.test")
	s.setAddresses("inner.test", "10.1.2.3")
	id := s.create(`,"allow_internet_access":false`)
	requireReached := func(want ...string) {
		t.Helper()
		for _, host := range []string{"a.test", "b.test", "inner.test"} {
			wanted := false
			for _, w := range want {
				wanted = wanted || w == host
			}
			if out, ok := s.curl(id, "https://"+host+"/", trustOutside...); ok != wanted {
				t.Errorf("%s: reached %v, want %v: %s", host, ok, wanted, out)
			}
		}
	}
	put := func(body string) { t.Helper(); s.call("PUT", "/sandboxes/"+id+"/network", body) }
	requireReached()
	put(`{"allowOut":["a.test"],"denyOut":["0.0.0.0/0"]}`)
	requireReached("a.test")
	put(`{}`)
	requireReached("a.test", "b.test")
	put(`{"denyOut":["` + b.address + `/32"]}`)
	dials := len(s.dials(b.address))
	requireReached("a.test")
	if n := len(s.dials(b.address)); n != dials {
		t.Errorf("a denied address was dialled %d times", n-dials)
	}
	put(`{"allowOut":["10.0.0.0/8"]}`)
	requireReached("a.test", "b.test")
	if len(s.dials("10.")) > 0 {
		t.Error("a private address was dialled")
	}
	put(`{"allow_internet_access":false,"allowOut":["b.test"]}`)
	requireReached("b.test")
	if len(a.seen()) == 0 {
		t.Error("control: a.test got no request at all")
	}
}
