package wasm_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// gatewayStub stands for the egress gateway: a proxy that allows one host and refuses all others in
// the gateway's form. make test-wasm has the same with the gateway.
func gatewayStub(t *testing.T, config []byte) (engine.Egress, func()) {
	t.Helper()
	var listener net.Listener
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.URL.Hostname() != "allowed.test" {
			w.Header().Set("X-Crannog-Blocked", "blocked "+r.Method+" "+r.Host+" rule=network.unlisted")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintln(w, "crannog: blocked")
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Answer", r.Header.Get("X-Question"))
		fmt.Fprintf(w, "%s %s with %d bytes for %s\n", r.Method, r.URL, n, r.Host)
	})
	attach := func(_ context.Context, end *os.File) (_ []byte, err error) {
		listener, err = net.FileListener(end)
		return config, err
	}
	return engine.Egress{Kind: engine.EgressProxy, Attach: attach}, func() {
		server := &http.Server{Handler: handler} //nolint:gosec // only a test's sandbox uses it
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { server.Close() })
	}
}

// P84: requests of modules go to the gateway and nowhere else, its refusals reach the module with
// their reason, and everything that a module passes is checked.
func TestRequests(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	binary, module := copyOfBinary(t), buildModule(t, "./testdata/requests")
	e, root := open(binary, false)(t, t.TempDir()), image(t, sandbox.ModuleTemplate, binary, module)
	var serve func()
	b := start(t, e, root, "requests", func(s *engine.Spec) { s.Egress, serve = gatewayStub(t, s.Boot.Config) })
	serve()
	alone := start(t, e, root, "alone")
	t.Run("a deterministic sandbox", func(t *testing.T) { checkFixedHasNoNetwork(t, e, image(t, "wasm-deterministic", binary, module)) })
	for _, c := range []struct {
		name    string
		b       *testSandbox
		args    string
		want    string
		warning string
	}{
		{"an allowed host answers", b, "send GET http://allowed.test/a?b=c X-Question:42 -", "req=0\nstatus=200\nx-answer=42\nGET http://allowed.test/a?b=c with 1 bytes for allowed.test\nclose=0\nclose again=1\n", ""},
		{"a refusal is an answer", b, "send GET http://other.test/ A:b -", "req=0\nstatus=403\nheader=5\ncrannog: blocked\nclose=0\nclose again=1\n", ""},
		{"a refused tunnel is an answer", b, "send GET https://other.test/ A:b -", "req=0\nstatus=403\nheader=5\ncrannog: blocked CONNECT other.test:443 rule=network.unlisted\nclose=0\nclose again=1\n", ""},
		{"another scheme", b, "send GET file:///etc/passwd A:b -", "req=10\n", ""},
		{"a tunnel of the module's own", b, "send CONNECT http://allowed.test/ A:b -", "req=8\n", ""},
		{"a line break in a method", b, "send GET\r\nX:y http://allowed.test/ A:b -", "req=8\n", ""},
		{"a header without a colon", b, "send GET http://allowed.test/ A -", "req=9\n", ""},
		{"the largest body", b, "size 16777216", "req=0\nstatus=200\n", ""},
		{"too large a body", b, "size 16777217", "req=11\n", ""},
		{"too long a URL", b, "long", "req=10\n", ""},
		{"too many answers", b, "handles", strings.Repeat("req=0\nstatus=200\n", 32) + "req=13\n", ""},
		{"addresses outside of the memory", b, "addresses", "req=3\nno answer=1\nreq=0\nstatus=200\nread=3\nheaders=4\n", ""},
		{"no network", alone, "send GET http://allowed.test/ A:b -", "req=7\n", "this sandbox has no network"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.b.run(t, append([]string{"program"}, strings.Split(c.args, " ")...)...)
			if r.out != c.want || r.code != 0 || !strings.Contains(r.err, c.warning) || c.warning == "" && r.err != "" {
				t.Errorf("got %q, errors %q, code %d; want %q, errors with %q", r.out, r.err, r.code, c.want, c.warning)
			}
		})
	}
}

// checkFixedHasNoNetwork checks that a deterministic sandbox has no network, and that its modules cannot
// import the functions for requests.
func checkFixedHasNoNetwork(t *testing.T, e engine.Engine, root engine.Image) {
	spec := engine.Spec{ID: "linked", Hostname: "linked", Image: root}
	spec.Egress, _ = gatewayStub(t, nil)
	if err := e.Create(t.Context(), spec); fault.CodeOf(err) != "deterministic_network" || fault.HintOf(err) == "" {
		t.Errorf("create a deterministic sandbox with a network: got %v", err)
	}
	b := start(t, e, root, "fixed")
	if r := b.run(t, "program", "handles"); r.code != 126 || !strings.Contains(r.err, "imports wasi_experimental_http.") || !strings.Contains(r.err, "a deterministic sandbox has no network") {
		t.Errorf("a module with requests: got %q, code %d", r.err, r.code)
	}
}
