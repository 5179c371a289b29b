package certs_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const (
	site = "registry.example.com"
	body = "hello from the causeway"
)

// serve serves HTTPS like the egress gateway, with a leaf for the requested name. It runs behind a
// CONNECT proxy, so that programs need no name server.
func serve(t *testing.T, a *certs.Authority) (proxy string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/info/refs"):
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = w.Write([]byte("001e# service=git-upload-pack\n00000000"))
		case strings.HasSuffix(r.URL.Path, "/config.json"):
			_, _ = w.Write([]byte(`{"dl":"https://` + site + `/dl"}`))
		case strings.HasSuffix(r.URL.Path, "/causewaytest"):
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(body + "\n"))
		}
	})
	tlsServer := httptest.NewUnstartedServer(mux)
	tlsServer.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Leaf(h.ServerName) }}
	// Programs that do not trust the authority abort handshakes, which is tested here.
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)

	connectProxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != site+":443" {
			http.Error(w, "only the site of the test", http.StatusForbidden)
			return
		}
		up, err := net.Dial("tcp", tlsServer.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = up.Close()
			return
		}
		_, _ = down.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
		go func() {
			_, _ = buffered.WriteTo(up)
			_ = up.(*net.TCPConn).CloseWrite()
		}()
		defer down.Close()
		defer up.Close()
		_, _ = io.Copy(down, up)
	}))
	t.Cleanup(connectProxy.Close)
	return connectProxy.URL
}

// Python 3.13 and newer verify strictly by default.
const python = `
import ssl, urllib.request
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT
print(urllib.request.urlopen("https://` + site + `/", context=context).read().decode())
`

const node = `
const http = require("http"), tls = require("tls"), u = new URL(process.env.HTTPS_PROXY);
http.request({host: u.hostname, port: u.port, method: "CONNECT", path: "` + site + `:443"}).on("connect", (_, s) => {
  const c = tls.connect({socket: s, servername: "` + site + `"}, () => c.write("GET / HTTP/1.1\r\nHost: ` + site + `\r\nConnection: close\r\n\r\n"));
  c.on("data", d => process.stdout.write(d)).on("error", e => { console.log(e.message); process.exit(1); });
}).end();
`

const java = `
import java.net.*;
public class Fetch {
  public static void main(String[] a) throws Exception {
    var in = new URL("https://` + site + `/").openStream();
    System.out.println(new String(in.readAllBytes()));
  }
}
`

// Every program must fetch with the files and variables, and must fail without them. Otherwise a
// program that verifies nothing would pass.
func TestProgramsTrustAuthority(t *testing.T) {
	a := authority(t, time.Now)
	proxy := serve(t, a)
	p, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	root, trustEnv := install(t, trust(t, a))
	via := []string{"HTTPS_PROXY=" + proxy, "https_proxy=" + proxy}
	trustEnv = append(trustEnv, via...)
	plainEnv := append(emptyEnv(t), via...)

	source := filepath.Join(t.TempDir(), "Fetch.java")
	if err := os.WriteFile(source, []byte(java), 0o600); err != nil {
		t.Fatal(err)
	}
	javaArgs := []string{"java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Dhttps.proxyHost=" + p.Hostname(), "-Dhttps.proxyPort=" + p.Port()}
	for _, c := range []struct {
		program string
		argv    []string
		// untrusted is argv without the trust options, for programs that need more than the
		// environment.
		untrusted []string
		want      string
	}{
		{program: "curl", argv: []string{"curl", "-sS", "--proxy", proxy, "https://" + site + "/"}, want: body},
		{program: "git", argv: []string{"git", "ls-remote", "https://" + site + "/a/b.git"}},
		{program: "python3", argv: []string{"python3", "-c", python}, want: body},
		{program: "node", argv: []string{"node", "-e", node}, want: body},
		{program: "openssl", argv: []string{
			"openssl", "s_client", "-verify_return_error", "-proxy", p.Host, "-connect", site + ":443", "-servername", site,
			"-verify_hostname", site, "-CApath", filepath.Join(root, "/etc/ssl/certs"), "-no-CAfile", "-no-CAstore",
		}, untrusted: []string{
			"openssl", "s_client", "-verify_return_error", "-proxy", p.Host, "-connect", site + ":443", "-servername", site,
		}, want: "Verify return code: 0 (ok)"},
		// The option replaces the file at its path in a sandbox, where GnuTLS looks for it.
		{program: "apt", argv: []string{
			"/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0", "-o", "Acquire::https::Proxy=" + proxy,
			"-o", "Acquire::https::CAInfo=" + filepath.Join(root, certs.BundlePath), "download-file", "https://" + site + "/a", "a",
		}, untrusted: []string{
			"/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0", "-o", "Acquire::https::Proxy=" + proxy,
			"download-file", "https://" + site + "/a", "a",
		}},
		// The property replaces the file at its path in a sandbox.
		{program: "java", argv: append(javaArgs, "-Djavax.net.ssl.trustStore="+filepath.Join(root, certs.JavaPath), source),
			untrusted: append(javaArgs[:len(javaArgs):len(javaArgs)], source), want: body},
	} {
		t.Run(c.program, func(t *testing.T) {
			hosttest.Need(t, hosttest.Program(c.program))
			out, err := run(t, trustEnv, c.argv)
			if err != nil || !strings.Contains(out, c.want) {
				t.Errorf("with the trust files: %v\n%s", err, out)
			}
			argv := c.argv
			if c.untrusted != nil {
				argv = c.untrusted
			}
			if out, err := run(t, plainEnv, argv); err == nil {
				t.Errorf("without the trust files the program succeeds:\n%s", out)
			}
		})
	}
}

func TestCargoTrustsAuthority(t *testing.T) {
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		hosttest.Need(t, hosttest.Program("cargo"))
	}
	a := authority(t, time.Now)
	proxy := serve(t, a)
	_, trustEnv := install(t, trust(t, a))
	project := t.TempDir()
	for name, text := range map[string]string{
		"Cargo.toml": "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ncausewaytest = { version = \"1\", registry = \"site\" }\n",
		"src/lib.rs": "",
		".cargo/config.toml": "[registries.site]\nindex = \"sparse+https://" + site + "/index/\"\n" +
			"[net]\nretry = 0\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(project, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	resolve := func(env []string) string {
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
		defer cancel()
		cmd := exec.CommandContext(ctx, cargo, "generate-lockfile")
		cmd.Dir = project
		// These variables lead to a toolchain that was installed for one user.
		for _, name := range []string{"RUSTUP_HOME", "RUSTUP_TOOLCHAIN"} {
			if v, ok := os.LookupEnv(name); ok {
				env = append(env, name+"="+v)
			}
		}
		if home, err := os.UserHomeDir(); err == nil {
			env = append(env, "RUSTUP_HOME="+filepath.Join(home, ".rustup"))
		}
		cmd.Env = append(env, "HTTPS_PROXY="+proxy, "CARGO_HOME="+t.TempDir())
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	// The registry has no such crate; the answer shows that its certificate was trusted.
	const trusted = "no matching package named `causewaytest` found"
	if out := resolve(trustEnv); !strings.Contains(out, trusted) {
		t.Errorf("with the trust files, cargo did not get an answer from the registry:\n%s", out)
	}
	if out := resolve(emptyEnv(t)); strings.Contains(out, trusted) || !strings.Contains(strings.ToLower(out), "ssl") {
		t.Errorf("without the trust files, cargo did not fail with a TLS error:\n%s", out)
	}
}
