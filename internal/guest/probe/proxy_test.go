package probe

import (
	"bufio"
	"net"
	"net/http"
	"testing"
)

// fakeProxy accepts connections to one target and refuses the others.
func fakeProxy(t *testing.T, allowed string) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				switch {
				case err != nil || request.Method != http.MethodConnect:
				case request.Host == allowed:
					_, _ = conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
				default:
					_, _ = conn.Write([]byte("HTTP/1.1 403 Forbidden\r\n\r\n"))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func TestPortsAreTriedThroughTheProxy(t *testing.T) {
	for _, test := range []struct {
		what            string
		reached, closed string
		holds           bool
	}{
		{"the policy", "api.test:443", "api.test:25", true},
		{"an allowed port that the proxy refuses", "api.test:80", "api.test:25", false},
		{"a closed port that the proxy opens", "api.test:443", "api.test:443", false},
	} {
		c := Checks{Proxy: fakeProxy(t, "api.test:443"), Reached: []string{test.reached}, Closed: []string{test.closed}}
		if err := c.checkPortsThrough(t.Context(), "api.test"); (err == nil) != test.holds {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	if err := checkClosedThrough(t.Context(), fakeProxy(t, "169.254.169.254:80"), "169.254.169.254:80"); err == nil {
		t.Error("a proxy that reaches the refused address passes")
	}
	// A proxy that does not answer makes no connection.
	if err := checkClosedThrough(t.Context(), "127.0.0.1:1", "api.test:443"); err != nil {
		t.Error(err)
	}
	silent := Checks{Proxy: "127.0.0.1:1", Reached: []string{"api.test:443"}}
	if err := silent.checkPortsThrough(t.Context(), "api.test"); err == nil {
		t.Error("an allowed port passes without a proxy")
	}
}
