package guestmain

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// listenOn is a program that listens on an address and answers with a word.
const listenOn = `import socket, sys
host, port, only = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "v6only"
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
if ":" in host:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
s.bind((host, port)); s.listen()
while True:
    c, _ = s.accept(); c.sendall((host + "\n").encode()); c.close()
`

// F5: a program is reached no matter on which address of the sandbox it listens.
func TestF5ProgramIsReachedOnAnyAddress(t *testing.T) {
	hosttest.Need(t, hosttest.Program("python3"))
	r := boot(t, config())
	for i, at := range []struct{ host, mode string }{
		{"127.0.0.1", ""}, {"0.0.0.0", ""}, {"127.0.0.2", ""}, {"::1", ""}, {"::", "v6only"}, {"::", ""},
	} {
		port := 8080 + i
		r.shell(fmt.Sprintf("python3 -c '%s' '%s' %d '%s' >/dev/null 2>&1 &", listenOn, at.host, port, at.mode))
		want := at.host + "\n"
		hosttest.EventuallyNoError(t, func() error {
			conn, err := r.first.Dial(t.Context(), port)
			if err != nil {
				return fmt.Errorf("%s %s: %w", at.host, at.mode, err)
			}
			defer conn.Close()
			if got, err := io.ReadAll(conn); string(got) != want {
				return fmt.Errorf("%s %s: answer %q, %v", at.host, at.mode, got, err)
			}
			return nil
		})
	}
	if _, err := r.first.Dial(t.Context(), 9); !errors.Is(err, relay.ErrRefused) {
		t.Errorf("a port without a listener: %v", err)
	}
}

// If nothing listens on the port, the caller gets ECONNREFUSED, not an error of the search for
// other addresses.
func TestDialProgramWithoutListener(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	conn, err := dialProgram(port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != l.Addr().String() {
		t.Errorf("remote address: got %s, want %s", got, l.Addr())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err := dialProgram(port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial without a listener: got %v, %v, want ECONNREFUSED", conn, err)
	}
}
