package pullthrough_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// front is a server that answers from the cache, as the egress gateway does. The registry behind it
// has the server's own address.
type front struct {
	*httptest.Server
	behind  *registry
	refused []error
}

// Get implements pullthrough.Upstream.
func (f *front) Get(ctx context.Context, url, accept string) (*http.Response, error) {
	return f.behind.Get(ctx, f.behind.URL+strings.TrimPrefix(url, f.URL), accept)
}

func newFront(t *testing.T, e packages.Ecosystem) *front {
	t.Helper()
	f, c := &front{behind: newRegistry(t)}, pullthrough.New(newStorage(t), time.Now)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := c.Serve(r.Context(), pullthrough.Request{Ecosystem: e, Origin: f.URL, Path: r.URL.EscapedPath(), Gate: young, Dated: true, Upstream: f})
		switch {
		case err != nil:
			f.behind.mu.Lock()
			f.refused = append(f.refused, err)
			f.behind.mu.Unlock()
			http.Error(w, err.Error(), http.StatusNotFound)
		case a.Pass:
			resp, err := f.Get(r.Context(), f.URL+r.URL.EscapedPath(), "")
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		default:
			defer a.Body.Close()
			w.Header().Set("Content-Type", a.Type)
			_, _ = io.Copy(w, a.Body)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// client runs a program with its own home.
func client(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	for _, e := range os.Environ() {
		// These would add packages of the host.
		if !strings.HasPrefix(e, "PIP_") && !strings.HasPrefix(e, "CARGO_") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, "CARGO_HOME="+filepath.Join(dir, "cargo"), "PIP_CONFIG_FILE=/dev/null", "PIP_NO_CACHE_DIR=1", "NO_PROXY=*")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func needClient(t *testing.T, name string) {
	t.Helper()
	if !hosttest.Full() {
		t.Skip("real clients run only with CRANNOG_TEST_FULL=1")
	}
	hosttest.Need(t, hosttest.Requirement{Name: name, Has: func() bool { _, err := exec.LookPath(name); return err == nil }})
}

// wheel returns a wheel of the project "six" and its metadata.
func wheel(t *testing.T, version string) (content, metadata string) {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	metadata = "Metadata-Version: 2.1\nName: six\nVersion: " + version + "\n"
	info := "six-" + version + ".dist-info/"
	for _, f := range []struct{ name, text string }{
		{"six.py", "version = '" + version + "'\n"}, {info + "METADATA", metadata},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "six.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(f.name)
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String(), metadata
}

// pip installs the newest version that is old enough, with its digest and its separate metadata.
func TestPipInstallsThroughCache(t *testing.T) {
	needClient(t, "pip")
	f, dir := newFront(t, packages.PyPI), t.TempDir()
	var list []version
	for _, v := range []version{{"1.0.0", "", 90 * day}, {"2.0.0", "", day}} {
		v.content, _ = wheel(t, v.id)
		list = append(list, v)
	}
	f.behind.project(simpleJSON, list...)
	f.behind.kind = simpleJSON
	// The links lead to the registry's own address, which is that of the server in front of it.
	index := strings.ReplaceAll(string(f.behind.files["/simple/six/"]), f.behind.URL, f.URL)
	for _, v := range list {
		_, metadata := wheel(t, v.id)
		f.behind.set("/packages/aa/six-"+v.id+"-py3-none-any.whl.metadata", []byte(metadata))
		index = strings.ReplaceAll(index, hexSum("Name: six "+v.id), hexSum(metadata))
	}
	f.behind.set("/simple/six/", []byte(index))
	client(t, dir, "pip", "install", "--isolated", "--no-input", "--target", "to", "--index-url", f.URL+"/simple/", "--trusted-host", "127.0.0.1", "six")
	if text, err := os.ReadFile(filepath.Join(dir, "to", "six.py")); err != nil || string(text) != "version = '1.0.0'\n" {
		t.Errorf("pip installed %q (%v), want version 1.0.0; refused: %v", text, err, f.refused)
	}
}

// Cargo selects the newest version that is old enough.
func TestCargoFetchesThroughCache(t *testing.T) {
	needClient(t, "cargo")
	f, dir := newFront(t, packages.Crates), t.TempDir()
	crate := func(version string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		w := tar.NewWriter(z)
		for _, file := range []struct{ name, text string }{
			{"Cargo.toml", "[package]\nname = \"serde\"\nversion = \"" + version + "\"\nedition = \"2021\"\n"}, {"src/lib.rs", ""},
		} {
			if err := w.WriteHeader(&tar.Header{Name: "serde-" + version + "/" + file.name, Mode: 0o644, Size: int64(len(file.text)), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, file.text); err != nil {
				t.Fatal(err)
			}
		}
		if w.Close() != nil || z.Close() != nil {
			t.Fatal("the crate cannot be written")
		}
		return out.String()
	}
	f.behind.crate(version{"1.0.0", crate("1.0.0"), 90 * day}, version{"1.1.0", crate("1.1.0"), day})
	f.behind.set("/config.json", []byte(`{"dl":"`+f.URL+`/crates/{crate}/{crate}-{version}.crate","api":"`+f.URL+`"}`))
	for name, text := range map[string]string{
		"Cargo.toml":         "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nserde = \"1\"\n",
		"src/lib.rs":         "",
		".cargo/config.toml": "[source.crates-io]\nreplace-with = \"near\"\n[source.near]\nregistry = \"sparse+" + f.URL + "/\"\n",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client(t, dir, "cargo", "fetch")
	lock, err := os.ReadFile(filepath.Join(dir, "Cargo.lock"))
	if err != nil || !strings.Contains(string(lock), "name = \"serde\"\nversion = \"1.0.0\"") {
		t.Errorf("cargo locked %s (%v), want serde 1.0.0; refused: %v", lock, err, f.refused)
	}
}
