package causeway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// agentProgram replaces an agent's program. It makes an agent's requests and then searches the
// sandbox for the key.
const agentProgram = "#!/usr/bin/env python3\nimport os, json, sys, time, subprocess, urllib.request, urllib.error\n" + searchProcesses + `
def found(k):
    environment = {'environ'} if any(k in (n + '=' + v).encode() for n, v in os.environ.items()) else set()
    return sorted(started(k) | environment | filed(k, '/.crannog'))
def ask(path, headers, host='api.anthropic.com', method='POST'):
    r = urllib.request.Request('https://' + host + path, data=b'{}' if method == 'POST' else None, headers=headers, method=method)
    try:
        with urllib.request.urlopen(r, timeout=300) as a: return [a.status, leaks(a.read())]
    except urllib.error.HTTPError as e: return [e.code, leaks(e.read())]
    except OSError as e: return [type(e).__name__, False]
placeholder = os.environ.get(sys.argv[1], '')
planted = 'planted-7f3e' + '9d2c'
out = {'args': sys.argv[1:], 'placeholder': placeholder, 'cwd': os.getcwd()}
out['message'] = ask('/v1/messages', {'x-api-key': placeholder})
out['ownkey'] = ask('/v1/messages', {'x-api-key': 'sk-ant-mine', 'Authorization': 'Bearer sk-ant-mine'})
out['upload'] = ask('/v1/files', {'x-api-key': placeholder})
out['otherhost'] = ask('/', {}, 'registry.npmjs.org', 'GET')
out['canary'] = found(K.encode())
child = subprocess.Popen(['sleep', '30'], env={'PLANTED': planted})
time.sleep(0.2)
open('/tmp/plant', 'w').write(planted)
out['planted'] = found(planted.encode())
child.kill()
out['settings'] = os.path.exists('/home/user/.claude.json')
out['login'] = os.path.exists('/home/user/.claude/credentials.json')
open('made-inside', 'w').write('x')
print(json.dumps(out))
`

// agentReport is the output of agentProgram.
type agentReport struct {
	Args                               []string
	Placeholder, Cwd                   string
	Message, OwnKey, Upload, OtherHost [2]any
	Canary, Planted                    []string
	Settings, Login                    bool
}

// agentHome creates a home directory with the agent's program and a login, and an empty project.
func agentHome(t *testing.T) (home, project string) {
	t.Helper()
	home, project = hosttest.ShortDir(t), hosttest.ShortDir(t)
	for name, text := range map[string]string{".local/bin/claude": agentProgram, ".claude/credentials.json": "{}"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return home, project
}

// P40: an agent started by its name reaches its API with a key that is never inside the sandbox.
func TestNamedAgentHasNoKeyInside(t *testing.T) {
	need(t)
	t.Parallel()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	state, path := hosttest.ShortDir(t), program(t)
	if err := w.write(state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := awaitCauseway(state); err != nil {
			t.Error(err)
		}
	})
	echo := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("x-api-key"))
	}
	api := w.web(t, 443, echo, "api.anthropic.com")
	npm := w.web(t, 443, nil, "registry.npmjs.org")
	home, project := agentHome(t)
	crannog := func(stdin string, args ...string) (string, string, error) {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir, cmd.Stdin = project, strings.NewReader(stdin)
		cmd.Env = []string{"HOME=" + home, "CRANNOG_STATE=" + state, "PATH=/usr/local/bin:/usr/bin:/bin", "ANTHROPIC_API_KEY=not-the-hosts-own"}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return stdout.String(), stderr.String(), err
	}
	if _, stderr, err := crannog("", "run", "claude"); err == nil || !contains(stderr, "agent_key_missing", "crannog secret set ANTHROPIC_API_KEY") {
		t.Fatalf("run claude without a stored key: got %v, stderr %s, want agent_key_missing", err, stderr)
	}
	if _, stderr, err := crannog(canary, "secret", "set", "ANTHROPIC_API_KEY"); err != nil {
		t.Fatal(err, stderr)
	}
	out, stderr, err := crannog("", "run", "claude", "--", "ANTHROPIC_API_KEY", "-x", "--")
	if err != nil {
		t.Fatal(err, stderr)
	}
	var report agentReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out)
	}
	if !slices.Equal(report.Args, []string{"ANTHROPIC_API_KEY", "-x", "--"}) || report.Cwd != "/workspace" || !report.Settings || report.Login {
		t.Errorf("the agent was started with %+v", report)
	}
	if report.Placeholder != "sealed-by-crannog-ANTHROPIC_API_KEY" || len(report.Canary) > 0 {
		t.Errorf("inside the sandbox the placeholder is %q and the key was found in %v", report.Placeholder, report.Canary)
	}
	if !slices.Contains(report.Planted, "environ") || !slices.Contains(report.Planted, "file") {
		t.Errorf("control: the planted text was found in %v only", report.Planted)
	}
	for name, got := range map[string][2]any{"message": report.Message, "with a key of its own": report.OwnKey} {
		if got != [2]any{200.0, false} {
			t.Errorf("%s: got %v, want status 200 without the key in the answer", name, got)
		}
	}
	if report.Upload[0] != 403.0 || report.OtherHost[0] == 200.0 || len(npm.seen()) > 0 {
		t.Errorf("got %v for an upload and %v for another host, want both denied", report.Upload, report.OtherHost)
	}
	seen := api.seen()
	if len(seen) != 2 {
		t.Fatalf("the API got %+v, want 2 requests", seen)
	}
	for _, r := range seen {
		if got := r.Header.Values("x-api-key"); r.Path != "/v1/messages" || !slices.Equal(got, []string{canary}) {
			t.Errorf("%s came with the key %q", r.Path, got)
		}
	}
	if _, err := os.Stat(filepath.Join(project, "made-inside")); err == nil {
		t.Error("the agent wrote to the host's directory")
	}
	// After -- the agent is a program like any other: it has no key and no network, and is not
	// mounted.
	if _, stderr, err := crannog("", "run", "--", "claude"); err == nil || !contains(stderr, "command_not_found") {
		t.Errorf("run -- claude: got %v, stderr %s, want command_not_found", err, stderr)
	}
	if _, stderr, err := crannog("", "run", "--net", "dev", "claude", "ANTHROPIC_API_KEY"); err != nil || len(npm.seen()) != 1 {
		t.Errorf("with --net dev the registry got %d requests, want 1: %v %s", len(npm.seen()), err, stderr)
	}
}
