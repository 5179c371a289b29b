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

// served is a server of the product in a test's fake internet, which E2B's clients use.
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

// create makes a sandbox that ends with the test.
func (s *served) create(fields string) string {
	s.t.Helper()
	id := s.call("POST", "/v2/sandboxes", `{"templateID":"base"`+fields+`}`)["sandboxID"].(string)
	s.ends(id)
	sb, err := s.Client(s.t).Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := sb.FS().WithContext(s.t.Context()).WriteFile("tmp/world.pem", s.Roots, 0o644); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// ends makes a sandbox end with the test.
func (s *served) ends(id string) {
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

// curl requests a page from inside. The outside authority certifies what is not decrypted, the
// gateway's what is.
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

var unopened = []string{"--cacert", "/tmp/world.pem"}

// own counts the stored values that belong to one sandbox alone.
func (s *served) own(id string) int {
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

// holds lists the files of the state directory that contain a text.
func (s *served) holds(text string) []string {
	s.t.Helper()
	return slices.DeleteFunc(hosttest.Holding(s.t, s.state, text), func(path string) bool { return filepath.Base(path) == internetFile })
}

// The headers of E2B's rules reach exactly the host that they are for. Their values are nowhere in
// the sandbox and nowhere in plain text, survive a restart, and are removed with their rules and
// with their sandbox.
func TestE2BRulesCarryHeadersAndF26ReflectionIsMasked(t *testing.T) {
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

	arrives := func(auth, fixed, team string) {
		t.Helper()
		before := len(good.seen())
		out, ok := s.curl(id, "https://api.good.test/")
		seen := good.seen()
		if !ok || len(seen) != before+1 {
			t.Fatalf("%s\n%s", out, s.Stderr())
		}
		h := seen[before].Header
		if h.Get("Authorization") != auth || h.Get("X-Fixed") != fixed || h.Get("X-Team") != team {
			t.Errorf("the host got %v", h)
		}
		// F26: a value that a transform sets comes back as stars, or unchanged if it is too short
		// for a secret.
		stars := func(value string) string { return strings.Repeat("*", len(value)) }
		scheme, key, _ := strings.Cut(auth, " ")
		want := "got " + strings.TrimSpace(scheme+" "+stars(key)) + " and " + stars(fixed) + " and " + team
		if strings.Contains(out, "canary") || strings.TrimSpace(out) != strings.TrimSpace(want) {
			t.Errorf("the sandbox reads %q, want %q", out, want)
		}
	}
	arrives("Bearer "+sealed, fixed, "blue")
	if out, ok := s.curl(id, "https://other.test/", unopened...); !ok || out != "got  and  and " || len(other.seen()) != 1 {
		t.Errorf("another host: %v %q", ok, out)
	}
	for _, value := range []string{sealed, fixed} {
		if found := s.holds(value); len(found) > 0 {
			t.Errorf("the value is in %v", found)
		}
	}
	// Control: the search would find the value.
	if len(s.holds("api.good.test")) == 0 {
		t.Error("the search finds nothing at all")
	}

	// A server with only the database finds all values again: the rotation of one sends each of
	// them again.
	s.Kill()
	s.Server = servetest.Start(t, s.program, s.state)
	s.call("POST", "/secrets/KEY", `{"value":"`+sealed+`-2"}`)
	arrives("Bearer "+sealed+"-2", fixed, "blue")
	if n := s.own(id); n != 1 {
		t.Errorf("%d values of its own", n)
	}
	s.call("PUT", "/sandboxes/"+id+"/network", `{`+lists+`,"rules":{"api.good.test":[{"transform":{"headers":{"X-Fixed":"`+fixed+`-3"}}}]}}`)
	arrives("", fixed+"-3", "")
	if n := s.own(id); n != 1 {
		t.Errorf("%d values of its own after a change", n)
	}
	s.call("PUT", "/sandboxes/"+id+"/network", `{`+lists+`}`)
	if out, ok := s.curl(id, "https://api.good.test/", unopened...); !ok || out != "got  and  and " {
		t.Errorf("without rules: %v %q", ok, out)
	}
	if n := s.own(id); n != 0 {
		t.Errorf("%d values of its own without rules", n)
	}
	s.call("PUT", "/sandboxes/"+id+"/network", `{`+lists+`,`+rules+`}`)
	s.call("DELETE", "/sandboxes/"+id, "")
	if n := s.own(id); n != 0 {
		t.Errorf("%d values outlive their sandbox", n)
	}
}

// Lists apply from the next request on, to names by the addresses they resolve to, and a sandbox
// that was made without the internet can be given some of it.
func TestE2BLists(t *testing.T) {
	need(t)
	t.Parallel()
	s := newServed(t)
	a, b := s.web(t, 443, nil, "a.test"), s.web(t, 443, nil, "b.test")
	s.resolves("inner.test", "10.1.2.3")
	id := s.create(`,"allow_internet_access":false`)
	reaches := func(want ...string) {
		t.Helper()
		for _, host := range []string{"a.test", "b.test", "inner.test"} {
			wanted := false
			for _, w := range want {
				wanted = wanted || w == host
			}
			if out, ok := s.curl(id, "https://"+host+"/", unopened...); ok != wanted {
				t.Errorf("%s: reached %v, want %v: %s", host, ok, wanted, out)
			}
		}
	}
	put := func(body string) { t.Helper(); s.call("PUT", "/sandboxes/"+id+"/network", body) }
	reaches()
	put(`{"allowOut":["a.test"],"denyOut":["0.0.0.0/0"]}`)
	reaches("a.test")
	put(`{}`)
	reaches("a.test", "b.test")
	put(`{"denyOut":["` + b.address + `/32"]}`)
	dials := len(s.dials(b.address))
	reaches("a.test")
	if n := len(s.dials(b.address)); n != dials {
		t.Errorf("a denied address was dialled %d times", n-dials)
	}
	put(`{"allowOut":["10.0.0.0/8"]}`)
	reaches("a.test", "b.test")
	if len(s.dials("10.")) > 0 {
		t.Error("a private address was dialled")
	}
	put(`{"allow_internet_access":false,"allowOut":["b.test"]}`)
	reaches("b.test")
	if len(a.seen()) == 0 {
		t.Error("nothing ever arrived")
	}
}
