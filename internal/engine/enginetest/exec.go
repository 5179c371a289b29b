package enginetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var execRules = []rule{
	{"exec/streams-and-exit-code", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		r := b.sh(t, "echo out; echo err >&2; exit 3")
		if r.stdout != "out\n" || r.stderr != "err\n" || r.code != 3 {
			t.Errorf("the command returned %+v, want out, err and the code 3", r)
		}
	}},
	{"exec/runs-as-the-user", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, "id -un; id -u; echo $HOME; pwd", "user\n1000\n/home/user\n/home/user")
	}},
	{"exec/root-on-request", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		if r := b.shAs(t, "root", "id -u; echo $HOME"); r.stdout != "0\n/root\n" {
			t.Errorf("as root the command returned %+v, want 0 and /root", r)
		}
	}},
	{"exec/writable-places", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		for _, dir := range []string{"/home/user", "/tmp", "/var/tmp", "/workspace"} {
			b.want(t, "cd "+dir+" && mkdir -p a/b && echo x > a/b/f && cat a/b/f && rm -r a", "x")
		}
		if r := b.sh(t, "echo x > /etc/passwd || echo x > /usr/bin/true"); r.code == 0 {
			t.Error("the user may write to /etc or /usr")
		}
	}},
	{"exec/extended-attributes", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, `cd && touch f && python3 -c 'import os; os.setxattr("f", "user.e2b.k", b"v"); print(os.getxattr("f", "user.e2b.k").decode())'`, "v")
	}},
	// P16 of docs/reference/promises.md
	{"exec/orphans-are-reaped", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		orphans := 300
		if hosttest.Full() {
			orphans = 2000
		}
		// Each subshell starts a child and ends before it, so that PID 1 inherits the child.
		if r := b.sh(t, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (sleep 0 & ); i=$((i+1)); done`, orphans)); r.code != 0 {
			t.Fatalf("the orphans were not started: %+v", r)
		}
		hosttest.Eventually(t, "no zombie left", func() bool {
			return strings.TrimSpace(b.shAs(t, "root", `cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ' || true`).stdout) == "0"
		})
	}},
	{"exec/descriptors-are-only-stdio", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		// A descriptor of the guest or the engine in a child would bypass every path check
		// (CVE-2024-21626). Descriptor 3 is the directory that Python lists.
		b.want(t, `python3 -c 'import os; print(*sorted(int(f) for f in os.listdir("/proc/self/fd")))'`, "0 1 2 3")
	}},
	{"exec/signal-dispositions-are-the-defaults", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		// No signal is handled, ignored or blocked, except the three that Python sets itself.
		const listSignals = `python3 -c 'import signal
print(*sorted(int(s) for s in signal.valid_signals() if signal.getsignal(s) not in (signal.SIG_DFL, None)), *signal.pthread_sigmask(signal.SIG_BLOCK, []))'`
		b.want(t, listSignals, "2 13 25")
		b.want(t, "trap '' USR1; "+listSignals, "2 10 13 25") // the control: an ignored signal is listed
	}},
	{"exec/large-output-without-newline-arrives", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		if r := b.sh(t, "head -c 20000000 /dev/zero | tr '\\0' x"); len(r.stdout) != 20_000_000 {
			t.Errorf("got %d bytes, want 20000000", len(r.stdout))
		}
	}},
	{"exec/large-input-arrives", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		// The input is larger than all buffers on the way, and its reader starts late.
		data := make([]byte, 16<<20)
		rand.NewChaCha8([32]byte{1}).Read(data)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://guest/files?path=big&username=user", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Access-Token", accessToken)
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := b.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("upload: %s", resp.Status)
		}
		b.want(t, "sha256sum < big | cut -d' ' -f1", fmt.Sprintf("%x", sha256.Sum256(data)))
	}},
}
