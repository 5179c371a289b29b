package causeway_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// serveRegistries serves package registries on one host: cargo's sparse registry, a Go module
// proxy, and an apt repository.
func serveRegistries(t testing.TB) http.HandlerFunc {
	t.Helper()
	const module, list = "/go/example.com/tiny/@v/", "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: a tiny one\nFilename: tiny.deb\nSize: 1\nSHA256: " +
		"0000000000000000000000000000000000000000000000000000000000000000\n"
	crate := tarGzip(t, map[string]string{
		"tiny-1.0.0/Cargo.toml": "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
		"tiny-1.0.0/src/lib.rs": "pub fn answer() -> u32 { 42 }\n",
	})
	files := map[string]string{
		"/":                              "hello",
		"/crates/index/config.json":      `{"dl":"https://shop.trust.test/crates/dl"}`,
		"/crates/index/ti/ny/tiny":       `{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"` + sum256(crate) + `","features":{},"yanked":false}` + "\n",
		"/crates/dl/tiny/1.0.0/download": crate,
		module + "list":                  "v1.0.0\n",
		module + "v1.0.0.info":           `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`,
		module + "v1.0.0.mod":            "module example.com/tiny\n",
		"/apt/Packages":                  list,
		"/apt/Release":                   fmt.Sprintf("Origin: us\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n", sum256(list), len(list)),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		text, there := files[r.URL.Path]
		if !there {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	}
}

func sum256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// tarGzip returns a compressed tar of some files.
func tarGzip(t testing.TB, files map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// javaProgram requests a page with both of Java's clients.
const javaProgram = `
import java.net.URI;
import java.net.URL;
import java.net.http.*;
import javax.net.ssl.HttpsURLConnection;

public class Get {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("old")) {
            HttpsURLConnection c = (HttpsURLConnection) new URL(args[1]).openConnection();
            System.out.println(c.getResponseCode() + " " + new String(c.getInputStream().readAllBytes()));
        } else {
            HttpRequest r = HttpRequest.newBuilder(URI.create(args[1])).build();
            HttpResponse<String> a = HttpClient.newHttpClient().send(r, HttpResponse.BodyHandlers.ofString());
            System.out.println(a.statusCode() + " " + a.version() + " " + a.body());
        }
    }
}
`

// trustingPrograms are programs in their usual use, without a configured certificate. Each starts
// without a cache, so that it makes a request each time.
var trustingPrograms = []struct{ name, line, wants string }{
	{"curl", "curl -sS -m 300 https://shop.trust.test/", "hello"},
	{"Python", `python3 -c 'import urllib.request as u; print(u.urlopen("https://shop.trust.test/", timeout=300).read().decode())'`, "hello"},
	{"Node", `node -e 'fetch("https://shop.trust.test/").then(r => r.text()).then(console.log, e => { console.log(e.cause || e); process.exit(1) })'`, "hello"},
	{"git", "git ls-remote https://git.trust.test/acme/pay.git refs/heads/main", "refs/heads/main"},
	{"Go", `export PATH=$PATH:/usr/local/go/bin HOME=/tmp GOFLAGS=-mod=mod GOTOOLCHAIN=local GOSUMDB=off GOPROXY=https://shop.trust.test/go GOPATH=$(mktemp -d) &&
cd $(mktemp -d) && printf 'module x\n\ngo 1.21\n' > go.mod && go list -m example.com/tiny@v1.0.0`, "example.com/tiny v1.0.0"},
	{"HttpsURLConnection", "java /tmp/Get.java old https://shop.trust.test/", "200 hello"},
	{"java.net.http", "java /tmp/Get.java new https://shop.trust.test/", "200 HTTP_2 hello"},
	{"cargo", `export CARGO_HOME=$(mktemp -d) && cd $(mktemp -d) && mkdir src && echo > src/lib.rs &&
printf '[package]\nname = "x"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\ntiny = { version = "1", registry = "shop" }\n' > Cargo.toml &&
printf '[registries.shop]\nindex = "sparse+https://shop.trust.test/crates/index/"\n[net]\nretry = 0\n' > $CARGO_HOME/config.toml &&
/usr/bin/cargo fetch && cat $CARGO_HOME/registry/src/*/tiny-1.0.0/src/lib.rs`, "pub fn answer()"},
	{"apt", `D=$(mktemp -d) && mkdir -p $D/lists/partial $D/cache/archives/partial && echo 'deb [trusted=yes] https://shop.trust.test/apt /' > $D/list &&
apt-get -o Dir::Etc::sourcelist=$D/list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$D/lists -o Dir::Cache=$D/cache -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Acquire::Retries=0 update &&
cat $D/lists/*Packages`, "Package: tiny"},
}

// TestProgramsTrustGateway checks that programs accept the gateway's certificates in their usual
// use, and only because of the authority that the gateway installs in the sandbox.
func TestProgramsTrustGateway(t *testing.T) {
	need(t, hosttest.Node, hosttest.Git, hosttest.Program("java"), hosttest.Program("cargo"), hosttest.Program("apt-get"), goInside)
	t.Parallel()
	a := sharedEnvironment(t)
	forge(t, a, "git.trust.test")
	up := a.web(t, 443, serveRegistries(t), "shop.trust.test")
	limits := small
	limits.MemoryBytes, limits.DiskBytes = 1<<30, 512<<20
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  hosts:
    - {host: shop.trust.test, rules: [{methods: [GET], do: allow}]}
    - {host: git.trust.test, rules: [{do: allow}]}
git: {fetch: allow, remotes: [{host: git.trust.test, repo: acme/pay}]}
`, crannog.Limits(limits))
	files := b.FS().WithContext(t.Context())
	if err := files.WriteFile("tmp/Get.java", []byte(javaProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range trustingPrograms {
		before := len(up.seen())
		out, code := b.exec("root", "", "sh", "-c", "( "+p.line+" ) 2>&1")
		if code != 0 || !contains(out, p.wants) {
			t.Errorf("%s: exit %d, %s", p.name, code, out)
		}
		if p.name != "git" && len(up.seen()) == before {
			t.Errorf("%s: nothing reached the host", p.name)
		}
	}
	// Control: with only the host's own roots, no program accepts the certificates.
	for _, path := range []string{certs.BundlePath, certs.JavaPath} {
		roots, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := files.WriteFile("tmp/roots", roots, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, code := b.exec("root", "", "cp", "--remove-destination", "/tmp/roots", path); code != 0 {
			t.Fatalf("replace %s: %s", path, out)
		}
	}
	if out, code := b.exec("root", "", "sh", "-c", "find /etc/ssl/certs -lname "+certs.AuthorityPath+" -delete && rm "+certs.AuthorityPath); code != 0 {
		t.Fatalf("remove the gateway's authority: %s", out)
	}
	before := len(up.seen())
	for _, p := range trustingPrograms {
		if out, code := b.exec("root", "", "sh", "-c", "( "+p.line+" ) 2>&1"); code == 0 || !strings.Contains(strings.ToLower(out), "certif") {
			t.Errorf("control: %s without the gateway's authority: exit %d, %s", p.name, code, out)
		}
	}
	if s := up.seen()[before:]; len(s) > 0 {
		t.Errorf("control: reached the host: %+v", s)
	}
}
