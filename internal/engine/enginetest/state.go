package enginetest

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// renewed returns the configuration of a sandbox that is restored from a saved state.
func renewed(id, hostname string, how guest.Renewal) []byte {
	return marshal(renewal(id, hostname, how))
}

// renewal returns the guest's configuration of a sandbox that continues in the given way.
func renewal(id, hostname string, how guest.Renewal) guest.Config {
	return guest.Config{
		SandboxID: id, TemplateID: "base", Hostname: hostname, AccessToken: accessToken, ControlToken: controlToken,
		DefaultUser: "user", MemoryBytes: 1 << 30, MilliCPU: 2000, DiskBytes: 1 << 30, PIDs: 512, Renew: how,
	}
}

// archived returns the configuration of a sandbox that boots with the files of an archive.
func archived(id string) []byte {
	return marshal(guest.Config{
		SandboxID: id, TemplateID: "base", Hostname: id, AccessToken: accessToken, ControlToken: controlToken,
		DefaultUser: "user", MemoryBytes: 1 << 30, MilliCPU: 2000, DiskBytes: 1 << 30, PIDs: 512, Archive: true, Renew: guest.Copied,
	})
}

// marshal encodes a guest's configuration.
func marshal(config guest.Config) []byte {
	data, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	return data
}

// saver returns the engine as a Checkpointer, for rules that need one.
func saver(e engine.Engine) engine.Checkpointer { return e.(engine.Checkpointer) }

// smallParts lists the parts of a state that are read before the sandbox runs.
func smallParts(e engine.Engine) (names []string) {
	for _, p := range saver(e).Parts() {
		if p.Kind == engine.PartSmall {
			names = append(names, p.Name)
		}
	}
	return names
}

// save writes a sandbox's state to a new directory. The sandbox keeps running.
func save(t testing.TB, b *testSandbox) string {
	t.Helper()
	dir := t.TempDir()
	if err := saver(b.e).Checkpoint(t.Context(), b.id, dir); err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	return dir
}

// Saved starts a sandbox, runs a shell command in it, and writes its state to a new directory. The
// sandbox is removed when the test ends.
func (c *Config) Saved(t testing.TB, line string) (dir string) {
	t.Helper()
	b := c.start(t, c.Open(t, t.TempDir()))
	if r := b.sh(t, line); r.code != 0 {
		t.Fatalf("%s: %d: %s", line, r.code, r.stderr)
	}
	return save(t, b)
}

// copyOf restores another sandbox from a state, and removes it when the test ends.
func (c *Config) copyOf(t testing.TB, e engine.Engine, dir string, change ...func(*engine.Spec)) *testSandbox {
	t.Helper()
	id := newID()
	spec := c.spec(id)
	spec.Hostname, spec.Boot.Config = id, renewed(id, id, guest.Copied)
	for _, f := range change {
		f(&spec)
	}
	if err := saver(e).Restore(t.Context(), spec, dir); err != nil {
		t.Fatalf("restore: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background(), id); err != nil {
			t.Errorf("remove %s: %v", id, err)
		}
	})
	return attach(t, e, id)
}

// startCounter starts a shell loop with a number that exists only in memory. The loop increments
// the number for each request of ask.
func startCounter(t testing.TB, b *testSandbox) {
	t.Helper()
	b.sh(t, "n=0; while :; do test -e ask && rm ask && n=$((n+1)) && echo $n > answer.new && mv answer.new answer; sleep 0.02; done >/dev/null 2>&1 &")
	b.want(t, ask, "1")
}

// ask prints the next number of the loop of startCounter.
const ask = "rm -f answer; echo x > ask; while ! test -e answer; do sleep 0.02; done; cat answer"

// startListener starts a program with a number that exists only in memory. The program increments
// the number for each request on a port, and returns it.
func startListener(t testing.TB, b *testSandbox, port int) {
	t.Helper()
	serve(t, b, port, "itertools; count = itertools.count(1)", "str(next(count))")
}

// serve starts a Python program that imports modules, and answers each HTTP request on a port with
// the value of an expression.
func serve(t testing.TB, b *testSandbox, port int, imports, expression string) {
	t.Helper()
	b.sh(t, fmt.Sprintf(`cat > keep.py <<'X'
import http.server, %s
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (%s).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", %d), H).serve_forever()
X
setsid python3 keep.py >/dev/null 2>&1 &
`, imports, expression, port))
	hosttest.Eventually(t, "the program listens", func() bool { return b.sh(t, get(port)).code == 0 })
}

// get returns a shell command that sends a request to a port and prints the response.
func get(port int) string {
	return fmt.Sprintf(`python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:%d/").read().decode())'`, port)
}

// number parses a number.
func number(t testing.TB, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(strings.TrimSpace(text), &n); err != nil {
		t.Fatalf("%q is not a number", text)
	}
	return n
}

// tarFiles returns the content of the files in an archive.
func tarFiles(t testing.TB, f *os.File) map[string]string {
	t.Helper()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[strings.TrimPrefix(h.Name, "./")] = string(text)
		}
	}
}

// tarList lists the entries of an archive, each with its path, its kind or mode, and its owner.
func tarList(t testing.TB, f *os.File) string {
	t.Helper()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	r := tar.NewReader(f)
	kinds := map[string]string{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := h.FileInfo().Mode().String()
		switch h.Typeflag {
		case tar.TypeSymlink:
			kind = "L"
		case tar.TypeChar:
			kind = "c"
		case tar.TypeLink:
			kind = kinds[h.Linkname]
		}
		kinds[h.Name] = kind
		fmt.Fprintf(&list, "%s %s %d\n", strings.TrimPrefix(h.Name, "/"), kind, h.Uid)
	}
}
