package causeway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// goInside requires Go at a path that sandboxes see too.
var goInside = hosttest.Requirement{Name: "Go in /usr/local/go", Has: func() bool { _, err := os.Stat("/usr/local/go/bin/go"); return err == nil }}

// registries are the hosts from which npm, go and apt download packages.
var registries = []string{"registry.npmjs.org", "proxy.golang.org", "deb.debian.org"}

// registrySandbox creates a sandbox that reaches the real registries, through a gateway with the
// real network.
func registrySandbox(t *testing.T) *testSandbox {
	t.Helper()
	a := &environment{internet: &internet{}, state: hosttest.ShortDir(t)}
	var err error
	if a.client, err = crannog.Local(t.Context(), localOptions(a.state)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.client.Close(); err != nil {
			t.Error(err)
		}
		if err := awaitCauseway(a.state); err != nil {
			t.Error(err)
		}
	})
	var hosts []string
	for _, h := range registries {
		cidrs := ""
		var found []netip.Addr
		if err := retry(t, func() (err error) {
			found, err = net.DefaultResolver.LookupNetIP(t.Context(), "ip4", h)
			return err
		}); err != nil {
			t.Fatalf("this host cannot reach %s: %v", h, err)
		}
		for _, f := range found {
			// A mirror with a private address has to be listed in the rule.
			if names.CheckAddress(f.Unmap(), nil, nil) != nil {
				cidrs = fmt.Sprintf("cidrs: [%s], ", netip.PrefixFrom(f.Unmap(), 32))
			}
		}
		hosts = append(hosts, fmt.Sprintf("    - {host: %s, ports: [80, 443], encoded_slash: true, %srules: [{methods: [GET, HEAD], do: allow}, {methods: [POST], paths: [/-/**], do: deny}]}\n", h, cidrs))
	}
	limits := small
	limits.MemoryBytes, limits.DiskBytes, limits.CommandTimeoutSeconds = 3<<29, 1<<30, 1800
	return a.testSandboxWith(t, crannog.Limits(limits), crannog.Timeout(time.Hour), crannog.Policy("policy: v1\nname: dev\npackages: {cache: [npm, go, apt]}\n"+withJailLevel("network:\n  unlisted: deny\n  hosts:\n"+strings.Join(hosts, ""))))
}

// retry tries up to three times, because other people's servers sometimes do not answer.
func retry(t testing.TB, do func() error) error {
	t.Helper()
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == 3 {
			return err
		}
		t.Logf("try %d: %v", try, err)
	}
}

// downloads are shell commands with their output after a success.
var downloads = []struct{ name, user, line, want string }{
	{"npm", "", `mkdir -p /tmp/js && cd /tmp/js && printf '{"name":"x","version":"1.0.0","dependencies":{"is-number":"7.0.0","@types/ms":"0.7.34"}}' > package.json &&
npm install --no-audit --no-fund --no-update-notifier --registry https://registry.npmjs.org/ 2>&1 && node -e 'console.log(require("is-number")(5), require("fs").existsSync("node_modules/@types/ms"))'`, "true true"},
	// The cache verifies the module, so go itself does not.
	{"go", "", `mkdir -p /tmp/go && cd /tmp/go && printf 'module x\n\ngo 1.21\n\nrequire golang.org/x/sync v0.10.0\n' > go.mod && printf 'package x\n\nimport _ "golang.org/x/sync/errgroup"\n' > x.go &&
export PATH=$PATH:/usr/local/go/bin HOME=/tmp GOFLAGS=-mod=mod GOTOOLCHAIN=local GOSUMDB=off GOPROXY=https://proxy.golang.org GOPATH=/tmp/gopath && go mod download 2>&1 && ls $GOPATH/pkg/mod/golang.org/x`, "sync@v0.10.0"},
	{"apt", "root", `mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial && echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-updates main' > /tmp/apt/list &&
apt-get -o Dir::Etc::sourcelist=/tmp/apt/list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=/tmp/apt/lists -o Dir::Cache=/tmp/apt/cache -o APT::Sandbox::User=root update 2>&1 && ls /tmp/apt/lists && cd /tmp/apt &&
apt-get -o Dir::Etc::sourcelist=/tmp/apt/list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=/tmp/apt/lists -o Dir::Cache=/tmp/apt/cache -o APT::Sandbox::User=root download ca-certificates 2>&1 && ls -d /tmp/apt/*.deb`, "/tmp/apt/ca-certificates_"},
}

func TestInstallsFromRealRegistries(t *testing.T) {
	need(t, hosttest.Node, hosttest.Program("npm"), hosttest.Program("apt-get"), goInside)
	t.Parallel()
	b := registrySandbox(t)
	for _, d := range downloads {
		if err := retry(t, func() error {
			if out, code := b.exec(d.user, "", "sh", "-c", d.line); code != 0 || !contains(out, d.want) {
				return fmt.Errorf("exit %d, %s", code, out)
			}
			return nil
		}); err != nil {
			t.Errorf("download with %s: %v", d.name, err)
		}
	}
	if hosttest.Full() {
		secondInstall(t, b)
	}
	if out, code := b.sh("npm ping --fetch-retries 0 --registry https://registry.yarnpkg.com/ 2>&1; curl -sS -m 60 https://github.com/"); code == 0 {
		t.Errorf("an unlisted host was reached: %s", out)
	}
	if t.Failed() {
		for _, r := range b.records() {
			if r.Effect != "allow" || r.Error != "" || r.Status >= 400 {
				t.Logf("%s %s %s:%d%s %d %s %s %s %s", r.Kind, r.Method, r.Host, r.Port, r.Path, r.Status, r.Effect, r.Rule, r.Reason, r.Error)
			}
		}
	}
}

// secondInstall repeats the downloads of the cached ecosystems without the clients' own caches: the
// gateway fetches nothing, and each answer is in the log with the digest that was verified.
func secondInstall(t *testing.T, b *testSandbox) {
	t.Helper()
	for n, e := range []struct {
		user, reset, digest string
		files               int
	}{
		{"", "rm -rf /tmp/js && export npm_config_cache=/tmp/another; ", "sha512-", 2},
		{"", "chmod -R u+w /tmp/gopath && rm -rf /tmp/go /tmp/gopath; ", "h1:", 2},
		{"root", "rm -rf /tmp/apt; ", "sha256-", 1},
	} {
		fetched, d := len(b.records()), downloads[n]
		if out, code := b.exec(e.user, "", "sh", "-c", e.reset+d.line); code != 0 || !contains(out, d.want) {
			t.Errorf("the second install with %s: got exit %d, %s", d.name, code, out)
		}
		files := 0
		for _, r := range b.records()[fetched:] {
			if r.Host != registries[n] || r.Package == nil {
				continue
			}
			if !r.Package.Cached || r.Address != "" || r.Package.Verdict != "passed" {
				t.Errorf("%s was fetched again: %+v", r.Path, *r.Package)
			}
			if r.Package.Version != "" && strings.HasPrefix(r.Package.Hash, e.digest) {
				files++
			}
		}
		if files != e.files {
			t.Errorf("%s: got %d packages from the cache, want %d", d.name, files, e.files)
		}
	}
}

// serveChat is a WebSocket server that echoes, and that requires a subprotocol.
func serveChat(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/ws/chat" {
		_, _ = io.WriteString(w, "hello from "+r.Host)
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(4 << 20)
	for {
		kind, data, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

// webSocket runs Node's WebSocket client, which Node 20 has behind a flag. It sends a text and a
// megabyte, and closes cleanly.
const webSocket = `node --experimental-websocket -e '
const s = new WebSocket(process.argv[1], "chat")
s.binaryType = "arraybuffer"
s.onopen = () => s.send("hello")
s.onerror = () => { console.log("failed"); process.exit(1) }
s.onmessage = ({ data }) => {
  if (typeof data === "string") { console.log(data, s.protocol); s.send(new Uint8Array(1 << 20).fill(7)); return }
  console.log(data.byteLength, new Uint8Array(data).every(b => b === 7))
  s.close(3000, "enough")
}
s.onclose = e => console.log(e.code, e.reason, e.wasClean)
' `

// Libraries trust the gateway in their usual use, without configuration.
func TestLibrariesTrustGateway(t *testing.T) {
	need(t, hosttest.Node, hosttest.Git, openssl)
	t.Parallel()
	a := sharedEnvironment(t)
	up, noSocket := a.web(t, 443, serveChat, "api.lib.test"), a.web(t, 443, serveChat, "quiet.lib.test")
	bare, _ := forge(t, a, "git.lib.test")
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  hosts:
    - {host: api.lib.test, websocket: allow, rules: [{methods: [GET, POST], paths: ["/**"], do: allow}]}
    - {host: quiet.lib.test, websocket: deny, rules: [{methods: [GET], paths: ["/**"], do: allow}]}
    - {host: git.lib.test, rules: [{do: allow}]}
git: {fetch: allow, push: {unlisted: deny}, remotes: [{host: git.lib.test, repo: acme/pay}]}
`)
	for name, line := range map[string]string{
		"curl":   "curl -sS -m 300 https://api.lib.test/",
		"urllib": `python3 -c 'import urllib.request as u; print(u.urlopen("https://api.lib.test/", timeout=300).read().decode())'`,
		"fetch":  `node -e 'fetch("https://api.lib.test/").then(r => r.text()).then(console.log, e => { console.log(e.cause || e); process.exit(1) })'`,
		"https":  `node -e 'require("https").get("https://api.lib.test/", r => r.on("data", d => console.log(String(d))))'`,
		"post":   "curl -sS -m 300 -d data --http2 https://api.lib.test/",
		"proxy":  "https_proxy=" + proxyURL() + " curl -sS -m 300 https://api.lib.test/",
	} {
		if out, code := b.sh(line); code != 0 || out != "hello from api.lib.test" {
			t.Errorf("%s: exit %d, %s", name, code, out)
		}
	}
	if out, code := b.sh(webSocket + "wss://api.lib.test/ws/chat"); code != 0 || out != "hello chat\n1048576 true\n3000 enough true" {
		t.Errorf("WebSocket: exit %d, %s", code, out)
	}
	if out, code := b.sh(webSocket + "wss://quiet.lib.test/ws/chat"); code != 1 || !contains(out, "failed") || len(noSocket.seen()) > 0 {
		t.Errorf("control: a WebSocket where none is allowed: exit %d, %s", code, out)
	}
	if out, code := b.sh("cd /tmp && git clone -q https://git.lib.test/acme/pay.git && cat pay/README && git -C pay fetch --all -q && git ls-remote https://git.lib.test/acme/pay.git refs/heads/main"); code != 0 || !contains(out, "a project", strings.Fields(host(t, bare, "git", "rev-parse", "main"))[0]) {
		t.Errorf("git: exit %d, %s", code, out)
	}
	if len(up.seen()) != 7 {
		t.Errorf("the fake internet got %d requests", len(up.seen()))
	}
}
