package gateway

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestMain(m *testing.M) {
	reexec.Dispatch(
		reexec.Role{Match: reexec.Arg0(Arg0), Run: serveTestEnvironment},
		reexec.Role{Match: reexec.Arg0("test-controller"), Run: runController},
		reexec.Role{Match: reexec.Arg0("test-stranger"), Run: runForeignProcess},
		reexec.Role{Match: reexec.Arg0("test-user"), Run: runAsUser},
		reexec.Role{Match: reexec.Arg0(kernelArg0), Run: runKernelPeer},
		attachmenttest.TapRole,
	)
	os.Exit(m.Run())
}

// testEnvironment is the network that the process of this test binary uses. It is a file in the
// state directory, which the real role never reads.
type testEnvironment struct {
	Addresses map[string]string // addresses of names
	Upstream  string            // where every connection really leads
	Roots     []byte
	About     *hello
}

const environmentFile = "environment.json"

// LookupNetIP implements names.Resolver.
func (w *testEnvironment) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a, ok := w.Addresses[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(a)}, nil
}

func serveTestEnvironment() {
	ServeGathered(func() ([]byte, error) {
		return os.ReadFile(filepath.Join(filepath.Dir(os.Args[1]), environmentFile))
	}, func(data []byte) (Environment, error) {
		var w testEnvironment
		if err := json.Unmarshal(data, &w); err != nil {
			return Environment{}, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(w.Roots)
		return Environment{Resolver: &w, Roots: roots, about: w.About, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, w.Upstream)
		}}, nil
	})
}

// newState creates a state directory with a file for its test environment.
func newState(t testing.TB, w testEnvironment) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range processes(t, dir) {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
		awaitEnd(t, dir)
		os.RemoveAll(dir)
	})
	writeEnvironment(t, dir, w)
	return dir
}

func writeEnvironment(t testing.TB, dir string, w testEnvironment) {
	t.Helper()
	data, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, environmentFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitEnd returns when the state directory's process has ended and has released its lock.
func awaitEnd(t testing.TB, dir string) {
	t.Helper()
	lock, err := os.Open(filepath.Join(dir, dirName, lockName))
	if err != nil {
		return // no process ever ran
	}
	defer lock.Close()
	done := make(chan error, 1)
	go func() { done <- unix.Flock(int(lock.Fd()), unix.LOCK_SH) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-hosttest.Late():
		log, _ := os.ReadFile(filepath.Join(dir, dirName, logName))
		t.Errorf("the process does not exit:\n%s", log)
	}
}

func mustConnect(t testing.TB, dir string, o Options) *Client {
	t.Helper()
	c, err := Connect(t.Context(), dir, o)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, dirName, logName))
		t.Fatalf("Connect: %v\n%s", err, log)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// documents returns a policy that allows one host over plain HTTP, and requires approval for one
// path.
func documents(t testing.TB) []policy.Layer {
	t.Helper()
	d, err := policy.Parse([]byte(`
policy: v1
name: task
level: light
network:
  unlisted: deny
  hosts:
    - host: api.test
      ports: [80]
      rules:
        - {id: ask, paths: [/ask], do: ask}
        - {id: rest, do: allow}
    - host: raw.test
      ports: [7000]
      tunnel: true
      rules: [{id: all, do: allow}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return []policy.Layer{{Kind: policy.LayerTask, Document: d}}
}

func recordFile(t testing.TB, dir, sandbox string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, sandbox+".ndjson"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func testAttachment(t testing.TB, dir, sandbox string) Attachment {
	return Attachment{Sandbox: sandbox, Policy: documents(t), Record: recordFile(t, dir, sandbox)}
}

func mustAttach(t testing.TB, c *Client, dir, sandbox string) *testPeer {
	t.Helper()
	end, certificate, err := c.Attach(t.Context(), testAttachment(t, dir, sandbox))
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, dirName, logName))
		t.Fatalf("Attach: %v\n%s", err, log)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(certificate) {
		t.Fatalf("Attach returned no PEM certificate: %q", certificate)
	}
	return newTestPeer(t, end)
}

// readRecords returns all flow entries of a sandbox, after checking that their numbers are
// consecutive.
func readRecords(t testing.TB, dir, sandbox string) []egress.Record {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, sandbox+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []egress.Record
	for d := json.NewDecoder(f); d.More(); {
		var r egress.Record
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if out = append(out, r); r.Seq != uint64(len(out)) || r.Sandbox != sandbox {
			t.Errorf("flow entry %d has the wrong number or sandbox: %+v", len(out), r)
		}
	}
	return out
}
