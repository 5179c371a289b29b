package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
)

// Regression: for the glob /a/, a rule matched only /a/ and a binding only /a.
func TestRulesAndBindingsMatchGlobsEqually(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	for _, c := range []struct {
		glob    string
		in, out []string
	}{
		{"/a/", []string{"/a/"}, []string{"/a", "/a/b", "/"}},
		{"/a", []string{"/a", "/%61"}, []string{"/a/", "/a/b"}},
		{"/a/*", []string{"/a/b"}, []string{"/a/", "/a", "/a/b/"}},
		{"/a/**", []string{"/a", "/a/", "/a/b", "/a/b/"}, []string{"/ab", "/"}},
		{"/", []string{"/"}, []string{"/a"}},
		{"/x*y/*", []string{"/xy/z", "/xaby/z"}, []string{"/xa/z", "/xyz/"}},
	} {
		b := w.newSandbox(strings.Replace(boundHost, "rules: [{do: allow}]}\n    - {host: ws", `rules: [{paths: ["`+c.glob+`"], do: allow}]}`+"\n    - {host: ws", 1), func(to *Config) {
			s := token("api.good.test")
			s.Paths = []string{c.glob}
			to.Secrets = []egress.Secret{s}
		})
		for _, path := range append(c.in, c.out...) {
			code, _ := b.get("https://api.good.test" + path)
			var auth string
			if code == 200 {
				auth = up.log()[len(up.log())-1].Auth
			}
			if in := strings.Contains("\n"+strings.Join(c.in, "\n")+"\n", "\n"+path+"\n"); (code == 200) != in || (auth != "") != in {
				t.Errorf("glob %s, path %s: status %d, authorization %q, want both only for a match", c.glob, path, code, auth)
			}
		}
		// The rule of this policy allows all paths, so only the binding is tested.
		b = w.newSandbox(boundHost, func(to *Config) {
			s := token("api.good.test")
			s.Paths = []string{c.glob}
			to.Secrets = []egress.Secret{s}
		})
		for _, path := range append(c.in, c.out...) {
			b.get("https://api.good.test" + path)
			in := strings.Contains("\n"+strings.Join(c.in, "\n")+"\n", "\n"+path+"\n")
			if got := up.log()[len(up.log())-1].Auth; (got != "") != in {
				t.Errorf("binding with the glob %s, path %s: authorization %q", c.glob, path, got)
			}
		}
	}
}

// If a secret is removed while a request with it is in progress, its response may still echo the
// value. Regression: such a response was redacted with the newest values only.
func TestRemovedSecretIsRedactedInPendingResponse(t *testing.T) {
	w := newEnvironment(t)
	received, goOn := make(chan struct{}), make(chan struct{})
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		close(received)
		<-goOn
		rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		rw.Header()[http.TrailerPrefix+"X-End"] = []string{r.Header.Get("Authorization")}
		_, _ = io.WriteString(rw, "you sent "+r.Header.Get("Authorization")+", and this is new: tk-other-9dQ7wE5r.")
	}, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	done := make(chan string, 1)
	go func() {
		resp, err := b.client(true).Get("https://api.good.test/")
		if err != nil {
			done <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		done <- fmt.Sprint(resp.Header, string(body), resp.Trailer, err)
	}()
	<-received
	other := egress.Secret{Name: "OTHER", Value: "tk-other-9dQ7wE5r", Generation: 1, Host: "api.good.test", Header: "X-Key"}
	if err := b.Update(b.current.Load().policy, []egress.Secret{other}); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if got := <-done; strings.Contains(got, secretValue) || strings.Contains(got, other.Value) || !strings.Contains(got, "you sent ") {
		t.Errorf("the sandbox received a secret: %s", got)
	}
}
