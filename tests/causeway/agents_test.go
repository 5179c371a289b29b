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

// agentProgram replaces an agent's program. It does what an agent does, and then looks for the key
// everywhere.
const agentProgram = "#!/usr/bin/env python3\nimport os, json, sys, time, subprocess, urllib.request, urllib.error\n" + searches + `
def found(k):
    own = {'environ'} if any(k in (n + '=' + v).encode() for n, v in os.environ.items()) else set()
    return sorted(started(k) | own | filed(k, '/.crannog'))
def ask(path, headers, host='api.anthropic.com', method='POST'):
    r = urllib.request.Request('https://' + host + path, data=b'{}' if method == 'POST' else None, headers=headers, method=method)
    try:
        with urllib.request.urlopen(r, timeout=300) as a: return [a.status, leaks(a.read())]
    except urllib.error.HTTPError as e: return [e.code, leaks(e.read())]
    except OSError as e: return [type(e).__name__, False]
stand = os.environ.get(sys.argv[1], '')
planted = 'planted-7f3e' + '9d2c'
out = {'args': sys.argv[1:], 'stand': stand, 'cwd': os.getcwd()}
out['message'] = ask('/v1/messages', {'x-api-key': stand})
out['own'] = ask('/v1/messages', {'x-api-key': 'sk-ant-mine', 'Authorization': 'Bearer sk-ant-mine'})
out['upload'] = ask('/v1/files', {'x-api-key': stand})
out['elsewhere'] = ask('/', {}, 'registry.npmjs.org', 'GET')
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

// agentSaw is what the program found.
type agentSaw struct {
	Args                            []string
	Stand, Cwd                      string
	Message, Own, Upload, Elsewhere [2]any
	Canary, Planted                 []string
	Settings, Login                 bool
}

// agentHome is a host with the program, in a home that holds a login too.
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

// P40: an agent that is run by its name reaches its API with a key that is never inside.
func TestAnAgentByNameHasItsKeyOutside(t *testing.T) {
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
	if _, said, err := crannog("", "run", "claude"); err == nil || !contains(said, "agent_key_missing", "crannog secret set ANTHROPIC_API_KEY") {
		t.Fatalf("without a key: %v %s", err, said)
	}
	if _, said, err := crannog(canary, "secret", "set", "ANTHROPIC_API_KEY"); err != nil {
		t.Fatal(err, said)
	}
	out, said, err := crannog("", "run", "claude", "--", "ANTHROPIC_API_KEY", "-x", "--")
	if err != nil {
		t.Fatal(err, said)
	}
	var saw agentSaw
	if err := json.Unmarshal([]byte(out), &saw); err != nil {
		t.Fatal(err, out)
	}
	if !slices.Equal(saw.Args, []string{"ANTHROPIC_API_KEY", "-x", "--"}) || saw.Cwd != "/workspace" || !saw.Settings || saw.Login {
		t.Errorf("it was started with %+v", saw)
	}
	if saw.Stand != "sealed-by-crannog-ANTHROPIC_API_KEY" || len(saw.Canary) > 0 {
		t.Errorf("inside are %q and the key in %v", saw.Stand, saw.Canary)
	}
	if !slices.Contains(saw.Planted, "environ") || !slices.Contains(saw.Planted, "file") {
		t.Errorf("control: what was planted is found in %v only", saw.Planted)
	}
	for name, got := range map[string][2]any{"message": saw.Message, "with a key of its own": saw.Own} {
		if got != [2]any{200.0, false} {
			t.Errorf("%s: %v", name, got)
		}
	}
	if saw.Upload[0] != 403.0 || saw.Elsewhere[0] == 200.0 || len(npm.seen()) > 0 {
		t.Errorf("an upload was %v, another host %v", saw.Upload, saw.Elsewhere)
	}
	seen := api.seen()
	if len(seen) != 2 {
		t.Fatalf("the API saw %+v", seen)
	}
	for _, r := range seen {
		if got := r.Header.Values("x-api-key"); r.Path != "/v1/messages" || !slices.Equal(got, []string{canary}) {
			t.Errorf("%s came with the key %q", r.Path, got)
		}
	}
	if _, err := os.Stat(filepath.Join(project, "made-inside")); err == nil {
		t.Error("the agent wrote to the host's directory")
	}
	// Run like any other program it has neither key nor network, and is not mounted.
	if _, said, err := crannog("", "run", "--", "claude"); err == nil || !contains(said, "command_not_found") {
		t.Errorf("behind -- it runs: %v %s", err, said)
	}
	if _, said, err := crannog("", "run", "--net", "dev", "claude", "ANTHROPIC_API_KEY"); err != nil || len(npm.seen()) != 1 {
		t.Errorf("with --net dev the registry saw %d requests: %v %s", len(npm.seen()), err, said)
	}
}
