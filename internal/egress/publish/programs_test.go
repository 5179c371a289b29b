package publish_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress/publish"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// registry checks a program's requests as if they went to a host, and stores the publications.
type registry struct {
	url  string
	seen context.Context // ends with the first publication

	mu    sync.Mutex
	found []publish.Publication
}

func newRegistry(t *testing.T, host string) *registry {
	seen, first := context.WithCancel(t.Context())
	r := &registry{seen: seen}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if p, ok := publish.Detect(q.Method, host, q.URL.EscapedPath(), q.Header); ok {
			r.mu.Lock()
			r.found = append(r.found, p)
			r.mu.Unlock()
			first()
		}
		switch {
		case strings.HasSuffix(q.URL.Path, "/config.json"):
			_, _ = io.WriteString(w, `{"dl":"`+r.url+`/dl","api":"`+r.url+`"}`)
		case q.Method == http.MethodGet:
			http.NotFound(w, q)
		default:
			_, _ = io.WriteString(w, `{"ok":true}`)
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs a program and ends it once it has published, because cargo then waits for its package to
// appear.
func (r *registry) run(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(r.seen, hosttest.Patience(hosttest.Hang))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	return string(out) + fmt.Sprint(err)
}

// Threat A6 (docs/reference/threat-model.md), for npm: the requests of the npm program are
// recognised.
func TestDetectNPMProgram(t *testing.T) {
	hosttest.Need(t, hosttest.Program("npm"))
	r := newRegistry(t, "registry.npmjs.org")
	dir := project(t, map[string]string{
		"package.json": `{"name":"@acme/pay","version":"1.2.3"}`,
		".npmrc":       "registry=" + r.url + "/\n//" + strings.TrimPrefix(r.url, "http://") + "/:_authToken=x\nfetch-retries=0\nupdate-notifier=false\n",
	})
	out := r.run(t, dir, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir()}, "npm", "publish", "--access", "public")
	want := publish.Publication{Kind: publish.NPM, Registry: "registry.npmjs.org", Package: "@acme/pay"}
	if len(r.found) != 1 || r.found[0] != want {
		t.Errorf("detected publications: got %+v, want %+v\n%s", r.found, want, out)
	}
}

// The requests of the cargo program are recognised.
func TestDetectCargoProgram(t *testing.T) {
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		hosttest.Need(t, hosttest.Program("cargo"))
	}
	r := newRegistry(t, "crates.io")
	dir := project(t, map[string]string{
		"Cargo.toml":         "[package]\nname = \"pay\"\nversion = \"1.2.3\"\nedition = \"2021\"\nlicense = \"MIT\"\ndescription = \"a\"\n",
		"src/lib.rs":         "",
		".cargo/config.toml": "[registries.site]\nindex = \"sparse+" + r.url + "/index/\"\n[net]\nretry = 0\n",
	})
	env := []string{"PATH=" + filepath.Dir(cargo) + ":/usr/bin:/bin", "HOME=" + t.TempDir(), "CARGO_HOME=" + t.TempDir(), "CARGO_REGISTRIES_SITE_TOKEN=x"}
	if home, err := os.UserHomeDir(); err == nil {
		env = append(env, "RUSTUP_HOME="+filepath.Join(home, ".rustup"))
	}
	for _, name := range []string{"RUSTUP_HOME", "RUSTUP_TOOLCHAIN"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	out := r.run(t, dir, env, cargo, "publish", "--registry", "site", "--no-verify", "--allow-dirty")
	if len(r.found) != 1 || r.found[0] != (publish.Publication{Kind: publish.Crates, Registry: "crates.io"}) {
		t.Errorf("detected publications: got %+v, want one of crates\n%s", r.found, out)
	}
}
