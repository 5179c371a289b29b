package ingress

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// FuzzHost checks that a parsed host name has a valid port and ID.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"3000-i1.x.y", "3000-i1-c.x:80", "49983-i1.localhost", "", ".", "-", "1-.x", "-i.x", "[::1]:80", "127.0.0.1",
		"3000-i1", "3000-i1.", "99999999999-i.x", "3000-I1.X", "3000-i1\x00.x", "٣-i1.x",
	} {
		f.Add(seed)
	}
	p := &Proxy{}
	f.Fuzz(func(t *testing.T, host string) {
		port, id, ok := p.hostTarget(host)
		if !ok {
			return
		}
		if strings.Trim(port, "0123456789") != "" || port == "" || !isID(id) {
			t.Fatalf("%q was parsed as port %q of %q", host, port, id)
		}
		to, refusal := parseTarget(id, port)
		if refusal == nil && (to.port < 1 || to.port > 65535 || to.id != id) {
			t.Fatalf("%q was parsed as the target %+v", host, to)
		}
		if !strings.HasPrefix(strings.ToLower(host), port+"-"+id) {
			t.Fatalf("%q does not begin with %s-%s", host, port, id)
		}
	})
}

// FuzzReserved checks that a path that a plain router would route to a private path is reserved.
func FuzzReserved(f *testing.F) {
	for _, seed := range []string{"/_crannog/ready", "/%5fcrannog", "//init", "/a/../init", "/files", "/%", "/%2525", "\\init", "/;/init"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		plain, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+u.Path), "/"), "/")
		if controlPaths[plain] && !reserved(u) {
			t.Fatalf("%q is not reserved, but a router reads it as %q", raw, plain)
		}
	})
}

// FuzzControlHeader checks that no spelling of the control header remains.
func FuzzControlHeader(f *testing.F) {
	for _, seed := range []string{"X-Crannog-Control", "x_crannog_control", "X-Other", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		h := http.Header{name: {"v"}, "Kept": {"v"}}
		stripControl(h)
		h.Del("Kept")
		for left := range h {
			if http.CanonicalHeaderKey(left) == controlHeader {
				t.Fatalf("the header %q was not removed", left)
			}
		}
	})
}

// FuzzInvalidTokenNeverResumes checks that a request without a valid token never resumes a sandbox.
func FuzzInvalidTokenNeverResumes(f *testing.F) {
	for _, seed := range [][2]string{
		{"/health", ""}, {"/files?path=a&signature=v1_x", "x"}, {"/files?signature=&signature_expiration=0", ""},
		{"/files?signature_expiration=-1;signature=v1_", "token\x00"}, {"/execute", "secre"}, {"//files?path=%zz", "secret "},
	} {
		f.Add(seed[0], seed[1], true)
		f.Add(seed[0], seed[1], false)
	}
	sb := sandbox.Sandbox{ID: "i1", AccessToken: "secret", TrafficToken: "other"}
	f.Fuzz(func(t *testing.T, raw, token string, inside bool) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || token == sb.AccessToken || token == sb.TrafficToken {
			return
		}
		to := target{id: "i1", port: guestboot.InterpreterPort}
		if inside {
			to.port = guestboot.Port
		}
		r := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{tokenHeader: {token}, TrafficHeader: {token}}}
		if mayResume(r, to, sb) == nil {
			t.Fatalf("%q with the token %q resumes the sandbox by port %d", raw, token, to.port)
		}
	})
}
