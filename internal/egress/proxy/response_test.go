package proxy

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const boundHost = `
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: api.good.test, ports: [443, 8080], rules: [{do: allow}]}
    - {host: ws.good.test, ports: [443], rules: [{do: allow}]}
`

func withToken(c *Config) { c.Secrets = []egress.Secret{token("api.good.test")} }

// withTokenForReads binds the token to reads of some paths.
func withTokenForReads(c *Config) {
	s := token("api.good.test")
	s.Methods, s.Paths = []string{"GET"}, []string{"/v1/**"}
	c.Secrets = []egress.Secret{s}
}

func TestSecretReplacesSandboxHeader(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(boundHost, withTokenForReads)
	dummy := http.Header{"Authorization": {"Bearer dummy", "Bearer second"}, "Connection": {"Authorization"}, "Range": {"bytes=0-3"}}
	for path, want := range map[string]string{"/v1/x": "Bearer " + secretValue, "/v2/x": ""} {
		if code, _ := b.do("GET", "https://api.good.test"+path, "", dummy); code != 200 {
			t.Fatalf("GET %s: got %d, want 200", path, code)
		}
		got := up.log()[len(up.log())-1]
		if got.Auth != want || len(got.Header["Authorization"]) > 1 {
			t.Errorf("GET %s: upstream got the authorization %q, want %q", path, got.Header["Authorization"], want)
		}
		if got.Header.Get("Range") != "" {
			t.Errorf("GET %s: upstream got the range %q, want none", path, got.Header.Get("Range"))
		}
	}
	if b.do("POST", "https://api.good.test/v1/x", "body", nil); up.log()[2].Auth != "" {
		t.Error("a request with an unbound method carried the secret")
	}
	hosttest.Eventually(t, "one entry names the secret", func() bool {
		n := 0
		for _, r := range b.records.all(egress.KindHTTP) {
			if len(r.Secrets) == 1 && r.Secrets[0] == "TOKEN" && r.Path == "/v1/x" && r.Method == "GET" {
				n++
			}
		}
		return n == 1
	})
}

func TestEchoedSecretIsRedacted(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		v := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		rw.Header().Set("X-Echo", v)
		rw.Header().Set("Trailer", "X-End")
		out := io.Writer(rw)
		switch r.URL.Path {
		case "/raw":
			fmt.Fprintf(rw, "value=%s.", v)
		case "/base64":
			for i := range 3 {
				fmt.Fprintf(rw, "%s\n", base64.StdEncoding.EncodeToString([]byte("ab"[:i%3]+"x"+v+"yz")))
			}
		case "/hex":
			io.WriteString(rw, hex.EncodeToString([]byte(v)))
		case "/gzip":
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(out)
			io.WriteString(z, "zipped "+v)
			z.Close()
		case "/bytes":
			for i := range v {
				rw.Write([]byte{v[i]})
				rw.(http.Flusher).Flush()
			}
		}
		rw.Header().Set("X-End", v)
	}, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	secret := []string{secretValue, base64.StdEncoding.EncodeToString([]byte("x" + secretValue))[4:20], hex.EncodeToString([]byte(secretValue))[:20]}
	for _, path := range []string{"/raw", "/base64", "/hex", "/gzip", "/bytes"} {
		for _, h2 := range []bool{false, true} {
			resp, err := b.client(h2).Get("https://api.good.test" + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			all := fmt.Sprint(resp.Header, resp.Trailer, string(body))
			for _, s := range secret {
				if strings.Contains(all, s) {
					t.Errorf("%s, HTTP/2 %v: the response contains the secret: %s", path, h2, all)
				}
			}
			if len(body) < 20 || !strings.Contains(string(body), "*") {
				t.Errorf("%s, HTTP/2 %v: nothing was redacted in %q", path, h2, body)
			}
			if resp.Header.Get("X-Echo") != "[redacted:TOKEN]" || h2 && resp.Trailer.Get("X-End") != "[redacted:TOKEN]" {
				t.Errorf("%s, HTTP/2 %v: header %q and trailer %q are not redacted", path, h2, resp.Header.Get("X-Echo"), resp.Trailer.Get("X-End"))
			}
		}
	}
}

func TestUnknownEncodingIsRefused(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "br")
		io.WriteString(rw, "compressed "+r.Header.Get("Authorization"))
	}, "api.good.test", "ws.good.test")
	b := w.newSandbox(boundHost, withToken)
	if code, body := b.do("GET", "https://api.good.test/", "", http.Header{"Accept-Encoding": {"br"}}); code != 502 || strings.Contains(body, secretValue) {
		t.Errorf("a response in an unknown encoding: got %d %s, want 502", code, body)
	}
	if e := up.log()[0].Header.Get("Accept-Encoding"); e != "identity" {
		t.Errorf("upstream was offered the encoding %q, want identity", e)
	}
	b = w.newSandbox(strings.ReplaceAll(boundHost, "host: ws.good.test, ports: [443], rules: [{", "host: ws.good.test, rules: [{methods: [GET], "), withToken)
	if code, _ := b.do("GET", "https://ws.good.test/", "", http.Header{"Accept-Encoding": {"br"}}); code != 200 {
		t.Errorf("control: a host without a binding: got %d, want 200", code)
	}
}

func TestRefusalsAndEntriesAreRedacted(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) { http.NotFound(rw, r) }, "api.good.test")
	b := w.newSandbox(boundHost+"    - {host: strict.good.test, rules: [{methods: [GET], do: deny}, {methods: [POST], do: allow}]}\n", withToken)
	_, body := b.get("https://strict.good.test/a/" + secretValue)
	if strings.Contains(body, secretValue) || !strings.Contains(body, "[redacted:TOKEN]") {
		t.Errorf("the refusal contains the secret: %s", body)
	}
	b.get("https://api.good.test/a/" + secretValue + "?" + secretValue)
	hosttest.Eventually(t, "there are two entries", func() bool { return len(b.records.all(egress.KindHTTP)) == 2 })
	if all := fmt.Sprintf("%+v", b.records.all()); strings.Contains(all, secretValue) {
		t.Errorf("the entries contain the secret: %s", all)
	}
}

func TestPlaceholdersAreNotReplaced(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	b.do("POST", "https://api.good.test/?k={}&t=TOKEN", `{"key":"{{TOKEN}}"}`, http.Header{"X-Key": {"{TOKEN}"}})
	if got := up.log()[0]; got.Body != `{"key":"{{TOKEN}}"}` || got.Header.Get("X-Key") != "{TOKEN}" {
		t.Errorf("upstream got %+v, want the text unchanged", got)
	}
}

func TestSecretIsNotSetOnPlainHTTP(t *testing.T) {
	w := newEnvironment(t)
	ln, _ := w.listen("8080", "api.good.test")
	authorization := make(chan string, 1)
	go http.Serve(ln, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { authorization <- r.Header.Get("Authorization") }))
	b := w.newSandbox(boundHost, func(c *Config) {
		s := token("api.good.test")
		s.Port = 8080
		c.Secrets = []egress.Secret{s}
	})
	if code, body := b.get("http://api.good.test:8080/"); code != 200 || <-authorization != "" {
		t.Errorf("a request over plain HTTP: got %d %s, or it carried the secret", code, body)
	}
}

func TestUpdateRejectsInvalidBindings(t *testing.T) {
	w := newEnvironment(t)
	b := w.newSandbox(boundHost, withToken)
	for name, change := range map[string]func(s *egress.Secret){
		"wildcard":   func(s *egress.Secret) { s.Host = "*.good.test" },
		"address":    func(s *egress.Secret) { s.Host = "10.0.0.1" },
		"plain http": func(s *egress.Secret) { s.Port = 80 },
		"host":       func(s *egress.Secret) { s.Header = "Host" },
		"framing":    func(s *egress.Secret) { s.Header = "Transfer-Encoding" },
		"line end":   func(s *egress.Secret) { s.Value = secretValue + "\r\nX: y" },
		"format":     func(s *egress.Secret) { s.Format = "Bearer" },
		"too short":  func(s *egress.Secret) { s.Value = "abc" },
	} {
		s := token("api.good.test")
		change(&s)
		if err := b.Update(b.current.Load().policy, []egress.Secret{s}); err == nil {
			t.Errorf("Update accepted a binding with an invalid %s", name)
		}
	}
	secondToken := token("api.good.test")
	secondToken.Name, secondToken.Value = "SECOND", "another-value-0123"
	if err := b.Update(b.current.Load().policy, []egress.Secret{token("api.good.test"), secondToken}); err == nil {
		t.Error("Update accepted two bindings of one header")
	}
	if len(b.current.Load().secrets) != 1 {
		t.Error("a failed update changed the secrets")
	}
}

func TestSecretRotationUsesAndExpiry(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %s", r.Header.Get("Authorization"), secretValue)
	}, "api.good.test")
	s := token("api.good.test")
	s.Uses = 3
	b := w.newSandbox(boundHost, func(c *Config) { c.Secrets = []egress.Secret{s} })
	keep := b.client(false)
	if code, _ := b.with(keep, "GET", "https://api.good.test/", "", nil); code != 200 {
		t.Fatalf("the first use: got %d, want 200", code)
	}
	next := s
	next.Value, next.Generation, next.Old = "sk-second-0a1b2c3d4e5f60718293", 2, []string{secretValue}
	if err := b.Update(b.current.Load().policy, []egress.Secret{next}); err != nil {
		t.Fatal(err)
	}
	code, body := b.with(keep, "GET", "https://api.good.test/", "", nil)
	if code != 200 || up.log()[1].Auth != "Bearer "+next.Value {
		t.Errorf("after a rotation: got %d, upstream got %q", code, up.log()[1].Auth)
	}
	if strings.Contains(body, secretValue) || strings.Contains(body, next.Value) {
		t.Errorf("the response contains a secret: %s", body)
	}
	b.with(keep, "GET", "https://api.good.test/", "", nil)
	if code, body := b.with(keep, "GET", "https://api.good.test/", "", nil); code != 403 || !strings.Contains(body, "secret_spent") {
		t.Errorf("the fourth use with a limit of 3: got %d %s, want secret_spent", code, body)
	}
	next.Uses, next.Expires = 100, time.Now().Add(-time.Second)
	if err := b.Update(b.current.Load().policy, []egress.Secret{next}); err != nil {
		t.Fatal(err)
	}
	if code, body := b.with(keep, "GET", "https://api.good.test/", "", nil); code != 403 || !strings.Contains(body, "secret_expired") {
		t.Errorf("a use after the expiry: got %d %s, want secret_expired", code, body)
	}
	if len(up.log()) != 3 {
		t.Errorf("upstream got %d requests, want 3", len(up.log()))
	}
}

func TestRedactedStreamDoesNotStall(t *testing.T) {
	w := newEnvironment(t)
	next := make(chan struct{})
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		flush := rw.(http.Flusher).Flush
		io.WriteString(rw, "data: s") // the first byte of the secret
		flush()
		<-next
		io.WriteString(rw, secretValue[1:10])
		flush()
		<-next
		io.WriteString(rw, secretValue[10:]+" end")
	}, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	resp, err := b.client(false).Get("https://api.good.test/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 7)
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "data: s" {
		t.Fatalf("the first piece: got %q %v, want data: s", buf, err)
	}
	next <- struct{}{}
	next <- struct{}{}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || strings.Contains(string(rest), secretValue[10:]) || !strings.HasSuffix(string(rest), " end") {
		t.Fatalf("the rest of the stream: got %q %v, want it redacted", rest, err)
	}
}

// Regression: a secret as the name of a header or a trailer was not redacted. The case of names
// changes on the way, so the search ignores case.
func TestHeaderNamesAreRedacted(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		v := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		names := []string{v, strings.ToUpper(v), "X-" + v + "-End", hex.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte("x" + v))}
		for i, name := range names {
			rw.Header()["X-Plain-"+strconv.Itoa(i)] = []string{"yes"}
			rw.Header()[name] = []string{"header"}
			rw.Header()[http.TrailerPrefix+name] = []string{"trailer"}
			rw.Header()[http.TrailerPrefix+"X-Kept"] = []string{"yes"}
		}
		io.WriteString(rw, "body")
	}, "api.good.test")
	for _, h2 := range []bool{false, true} {
		b := w.newSandbox(boundHost, withToken)
		resp, err := b.client(h2).Get("https://api.good.test/")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		all := strings.ToLower(fmt.Sprint(resp.Header, resp.Trailer))
		for _, form := range []string{secretValue, hex.EncodeToString([]byte(secretValue)), base64.RawURLEncoding.EncodeToString([]byte("x" + secretValue))[4:20]} {
			if strings.Contains(all, strings.ToLower(form)) {
				t.Errorf("HTTP/2 %v: the headers contain %s: %s", h2, form, all)
			}
		}
		if resp.Header.Get("X-Plain-0") != "yes" || h2 && resp.Trailer.Get("X-Kept") != "yes" {
			t.Errorf("HTTP/2 %v: control: other headers are missing: %v %v", h2, resp.Header, resp.Trailer)
		}
	}
}
