package attachment_test

import (
	"io"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
)

// echo accepts everything and sends back what it receives.
func echo(f *attachment.Flow) {
	c, err := f.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.Copy(c, c)
}

func TestHandlerGetsEveryAddressAndPort(t *testing.T) {
	seen := make(chan string, 16)
	_, b := open(t, &handler{tcp: func(f *attachment.Flow) {
		seen <- f.Destination().String()
		echo(f)
	}}, attachment.Options{})
	for _, to := range []string{
		"1.1.1.1:443", "10.199.0.1:3128", "10.199.0.1:1", "198.18.0.7:80", "169.254.169.254:80", "192.168.0.1:65535", "8.8.8.8:22",
	} {
		c := b.mustDial(t, to)
		if got := <-seen; got != to {
			t.Errorf("dialed %s, the handler got %s", to, got)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Errorf("echo from %s: got %q %v, want hello", to, got, err)
		}
	}
}

func TestRefusedFlowIsConnectionRefused(t *testing.T) {
	for name, refuse := range map[string]func(f *attachment.Flow){
		"refused":   func(f *attachment.Flow) { f.Refuse() },
		"undecided": func(*attachment.Flow) {},
		"twice":     func(f *attachment.Flow) { f.Refuse(); f.Refuse() },
		"refused and accepted": func(f *attachment.Flow) {
			f.Refuse()
			if c, err := f.Accept(); err == nil {
				c.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := open(t, &handler{tcp: refuse}, attachment.Options{})
			if c, err := b.dial(t.Context(), "1.1.1.1:443"); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Fatalf("dial returned %v %v, want connection refused", c, err)
			}
		})
	}
}
