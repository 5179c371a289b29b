package certs_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func trust(t *testing.T, a *certs.Authority, stores ...string) certs.Trust {
	t.Helper()
	// Another authority stands for the public roots.
	b, err := certs.ReadBundle(authority(t, time.Now).Certificate())
	if err != nil {
		t.Fatal(err)
	}
	return a.Trust(b, stores...)
}

func file(t *testing.T, tr certs.Trust, path string) certs.File {
	t.Helper()
	for _, f := range tr.Files {
		if f.Path == path {
			return f
		}
	}
	t.Fatalf("no file %s", path)
	return certs.File{}
}

func TestTrustFiles(t *testing.T) {
	a := authority(t, time.Now)
	tr := trust(t, a, "/opt/jdk/lib/security/cacerts", certs.JavaPath)
	seen := map[string]bool{}
	for _, f := range tr.Files {
		if seen[f.Path] || (f.Link == "") == (len(f.Data) == 0) || f.Link == f.Path {
			t.Errorf("%s occurs twice, or has both content and a link: %d bytes, %q", f.Path, len(f.Data), f.Link)
		}
		seen[f.Path] = true
		if bytes.Contains(f.Data, []byte("PRIVATE KEY")) {
			t.Errorf("%s contains a private key", f.Path)
		}
	}
	for _, f := range tr.Files {
		if f.Link != "" && !seen[f.Link] {
			t.Errorf("%s points to %s, which does not exist", f.Path, f.Link)
		}
	}
	for name, path := range tr.Env {
		if !seen[path] {
			t.Errorf("variable %s is %s, which is not among the files", name, path)
		}
	}
	if !seen["/opt/jdk/lib/security/cacerts"] {
		t.Error("a trust store of the image is not replaced")
	}
	bundle := file(t, tr, certs.BundlePath).Data
	if n := bytes.Count(bundle, []byte("BEGIN CERTIFICATE")); n != 2 || !bytes.Contains(bundle, a.Certificate()) {
		t.Errorf("the bundle has %d certificates, want 2 with the authority's", n)
	}
}

// An operator's own bundle may contain a private key.
func TestTrustContainsOnlyCertificates(t *testing.T) {
	a := authority(t, time.Now)
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("do not show this")})
	b, err := certs.ReadBundle(append(secret, authority(t, time.Now).Certificate()...))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Trust(b).Files {
		if bytes.Contains(f.Data, secret) || bytes.Contains(f.Data, []byte("do not show this")) {
			t.Errorf("%s contains the private key", f.Path)
		}
	}
	for _, empty := range [][]byte{nil, secret, []byte("not PEM")} {
		if _, err := certs.ReadBundle(empty); fault.CodeOf(err) != "bundle_empty" {
			t.Errorf("a bundle without certificates: got %v, want bundle_empty", err)
		}
	}
}

// An addition to a bundle yields the same bundle as Trust.
func TestAdditionEqualsTrust(t *testing.T) {
	a, publicRoot := authority(t, time.Now), authority(t, time.Now).Certificate()
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("do not show this")})
	add, err := certs.Addition(append(secret, a.Certificate()...))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range add.Files {
		if bytes.Contains(f.Data, []byte("PRIVATE KEY")) || f.Append != (f.Path == certs.BundlePath) {
			t.Errorf("%s contains the private key, or has the wrong value of Append: %v", f.Path, f.Append)
		}
	}
	// The existing bundle has no line break after its last line.
	bundle := append(bytes.TrimSpace(publicRoot), file(t, add, certs.BundlePath).Data...)
	b, err := certs.ReadBundle(publicRoot)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	want := x509.NewCertPool()
	want.AppendCertsFromPEM(file(t, a.Trust(b), certs.BundlePath).Data)
	if !pool.Equal(want) {
		t.Errorf("the bundle differs from that of Trust:\n%s", bundle)
	}
	store, err := certs.JavaStore(b, a.Certificate())
	if err != nil || !bytes.Equal(store.Data, file(t, a.Trust(b), certs.JavaPath).Data) {
		t.Errorf("the Java store differs from that of Trust: %v", err)
	}
	if _, err := certs.Addition(secret); err == nil {
		t.Error("Addition without a certificate returned no error")
	}
}

func TestRootsIncludeOperatorsCertificates(t *testing.T) {
	other := authority(t, time.Now)
	with, err := certs.Roots(other.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	without, err := certs.Roots(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := other.Leaf("example.com")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: with}); err != nil {
		t.Errorf("the operator's root does not verify its leaf: %v", err)
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: without}); err == nil {
		t.Error("without the operator's root its leaf is trusted")
	}
	if _, err := certs.Roots([]byte("not PEM")); err == nil {
		t.Error("Roots without a certificate returned no error")
	}
}

// OpenSSL finds a root in its directory by a file name that contains a hash of the subject.
func TestSubjectHashEqualsOpenSSL(t *testing.T) {
	hosttest.Need(t, hosttest.Program("openssl"))
	for _, sandbox := range []string{"sb_1", "UPPER  and   spaces ", strings.Repeat("x", 90), "ümlaut"} {
		a, err := certs.New(sandbox, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "openssl", "x509", "-noout", "-subject_hash")
		cmd.Stdin = bytes.NewReader(a.Certificate())
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		file(t, trust(t, a), "/etc/ssl/certs/"+strings.TrimSpace(string(out))+".0")
	}
}

// install writes the files below a directory and returns the environment that refers to them,
// without this process's own trust settings.
func install(t *testing.T, tr certs.Trust) (root string, env []string) {
	t.Helper()
	root = t.TempDir()
	for _, f := range tr.Files {
		path := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if f.Link != "" {
			err = os.Symlink(filepath.Join(root, f.Link), path)
		} else {
			err = os.WriteFile(path, f.Data, os.FileMode(f.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	env = emptyEnv(t)
	for name, path := range tr.Env {
		env = append(env, name+"="+filepath.Join(root, path))
	}
	return root, env
}

func emptyEnv(t *testing.T) []string {
	t.Helper()
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir()}
}

func run(t *testing.T, env, argv []string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func BenchmarkTrust(b *testing.B) {
	data, err := os.ReadFile(certs.BundlePath)
	if err != nil {
		b.Skip(err)
	}
	a, err := certs.New("sb_1", time.Now)
	if err != nil {
		b.Fatal(err)
	}
	bundle, err := certs.ReadBundle(data)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = a.Trust(bundle)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := certs.New("sb_1", time.Now); err != nil {
			b.Fatal(err)
		}
	}
}
