package upgrade_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// secretValue is the value of a stored secret.
const secretValue = "a-secret-value-of-before-0123456789"

// policy allows and denies requests, requires approvals for one host, and binds the secret.
const policy = `policy: v1
name: before
network:
  unlisted: deny
  hosts:
    - host: api.example.com
      rules:
        - {id: read, methods: [GET], do: allow}
        - {id: never, paths: ["/admin/**"], do: deny}
    - host: ask.example.com
      rules: [{id: asks, do: ask}]
secrets:
  bind:
    - {name: TOKEN, host: api.example.com, header: Authorization, format: "Bearer {}"}
`

// sendingPolicy binds the secret to outsideHost.
const sendingPolicy = `policy: v1
name: sending
level: light
network:
  unlisted: deny
  hosts: [{host: ` + outsideHost + `, rules: [{methods: [GET], do: allow}]}]
secrets:
  bind: [{name: TOKEN, host: ` + outsideHost + `, header: Authorization, format: "Bearer {}"}]
`

// strictPolicy has the strictest level, and readingPolicy the level that hides no files.
const (
	strictPolicy  = "policy: v1\nname: strict\nlevel: strict\n"
	readingPolicy = "policy: v1\nname: reading\nlevel: minimal\n"
)

// testWalls returns what a shell can do in a sandbox at the strictest level. In the earlier version
// it could create a file in /etc.
func testWalls(t *testing.T, sb *crannog.Sandbox) string {
	t.Helper()
	return output(t, sb, `id -u; for f in /usr/x /etc/x /home/user/x /tmp/x /workspace/x; do
touch $f 2>/dev/null && echo "$f is made" && rm $f; done
cat /workspace/.env /workspace/.envrc 2>&1; curl -sS -m 60 https://`+outsideHost+`/ 2>&1 || true`)
}

// strictWalls is the result of testWalls in this version.
const strictWalls = `1000
/tmp/x is made
/workspace/x is made
cat: /workspace/.env: No such file or directory
protected
curl: (6) Could not resolve host: ` + outsideHost

// earlierState describes what the earlier version left in a state directory.
type earlierState struct {
	state, dir string
	server     *servetest.Server
	// IDs of sandboxes.
	runs, copied, paused, files, booted, ended, sends, strict string
	// IDs of snapshots: two of the running sandbox, and one of paused, which hides no file.
	whole, flat, plain string
	pending, approved  string // approval requests
	key                string
	cookie             *http.Cookie // of a person who is logged in to the console
	checkpoint         string       // file of a signed tree head
	counted            int          // number of the counting program at the end
	listed             map[string]api.Sandbox
}

// startCounter starts a program with a number in its memory, which it increments on each SIGUSR1.
func startCounter(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	output(t, sb, `cat > /tmp/count.py <<'X'
import os, signal
n = 0
def add(*a):
    global n
    n += 1
    with open("/tmp/next", "w") as f: f.write(str(n))
    os.rename("/tmp/next", "/tmp/count")
signal.signal(signal.SIGUSR1, add)
open("/tmp/up", "w").close()
while True: signal.pause()
X
setsid python3 /tmp/count.py >/dev/null 2>&1 & while ! test -e /tmp/up; do sleep 0.02; done`)
}

// increment makes the program increment its number and returns it.
func increment(t *testing.T, sb *crannog.Sandbox) int {
	t.Helper()
	n, err := strconv.Atoi(output(t, sb, `rm -f /tmp/count; pkill -USR1 -f '^python3 /tmp/count' && while ! test -e /tmp/count; do sleep 0.02; done; cat /tmp/count`))
	if err != nil {
		t.Error(err)
	}
	return n
}

// createEarlierState fills a state directory with the earlier version, whose server keeps running.
func createEarlierState(t *testing.T, old string) *earlierState {
	t.Helper()
	p := &earlierState{state: t.TempDir(), dir: t.TempDir(), listed: map[string]api.Sandbox{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("prepare the earlier state: %v\n%s", err, p.server.Stderr())
		}
	}
	for name, content := range map[string]string{"kept.txt": "before\n", "changed.txt": "before\n", ".env": "hidden\n", ".envrc": "protected\n"} {
		check(os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644))
	}
	p.server = servetest.StartOnly(t, old, p.state)
	c, ctx := p.server.Local(t), t.Context()
	_, err := c.NewSecret(ctx, api.CreateSecret{Name: "TOKEN", Value: secretValue})
	check(err)
	_, err = c.NewAgentKey(ctx, "agent-of-before")
	check(err)
	p.key = strings.TrimSpace(must(t, old, p.state, p.dir, "key", "new", "--quiet", "key-of-before"))

	link, err := c.ConsoleLink(ctx, "Ann", "operator", 0)
	check(err)
	res, err := http.Post(p.server.URL+"/console/api/session", "application/json", strings.NewReader(`{"token":"`+link.Token+`"}`))
	check(err)
	defer res.Body.Close()
	if len(res.Cookies()) != 1 {
		t.Fatalf("the sign-in: %s", res.Status)
	}
	p.cookie = res.Cookies()[0]
	create := func(options ...crannog.CreateOption) *crannog.Sandbox {
		t.Helper()
		sb, err := c.Create(ctx, append(options, crannog.Timeout(life))...)
		check(err)
		startCounter(t, sb)
		return sb
	}
	runs := create(crannog.Name("runs"), crannog.Workspace(p.dir), crannog.Policy(policy), crannog.Metadata(map[string]string{"of": "before"}))
	p.runs = runs.ID()
	output(t, runs, "cd /workspace && echo after > changed.txt && echo new > new.txt && echo "+secretValue+" > leaks.txt")
	increment(t, runs)
	whole, err := runs.Snapshot(ctx, api.CreateSnapshot{Name: "whole"})
	check(err)
	flat, err := runs.Snapshot(ctx, api.CreateSnapshot{Name: "flat", FilesOnly: true})
	check(err)
	p.whole, p.flat = whole.ID, flat.ID
	copies, err := runs.Fork(ctx, api.CreateFork{})
	check(err)
	p.copied = copies[0].ID()
	p.counted = increment(t, runs)

	sending := create(crannog.Name("sends"), crannog.Policy(sendingPolicy))
	p.sends = sending.ID()
	requireSecretSent(t, "before", sending)
	strictest := create(crannog.Name("strict"), crannog.Workspace(p.dir), crannog.Policy(strictPolicy))
	p.strict = strictest.ID()
	increment(t, strictest)
	check(strictest.Pause(ctx))

	askAccess := func(host string) string {
		t.Helper()
		a, err := runs.AskAccess(ctx, api.AskAccess{Host: host, Reason: "before"})
		check(err)
		return a.Approval
	}
	p.approved, p.pending = askAccess("one.example.net"), askAccess("two.example.net")
	_, err = c.Approve(ctx, p.approved, "fine", false)
	check(err)

	paused := create(crannog.Name("asleep"))
	p.paused = paused.ID()
	increment(t, paused)
	plain, err := paused.Snapshot(ctx, api.CreateSnapshot{Name: "plain"})
	check(err)
	p.plain = plain.ID
	check(paused.Pause(ctx))
	files := create(crannog.Name("files"))
	p.files = files.ID()
	increment(t, files)
	check(files.Pause(ctx))
	booted := create(crannog.Name("booted"))
	p.booted = booted.ID()
	check(booted.PauseFiles(ctx))
	ended := create(crannog.Name("ended"))
	p.ended = ended.ID()
	must(t, old, p.state, p.dir, "run", "--", "sh", "-c", "echo printed; echo run > of-run.txt")
	must(t, old, p.state, p.dir, "stop", p.ended)
	must(t, old, p.state, p.dir, "policy", "set", p.copied, "--allow", "set.example.com")

	p.checkpoint = filepath.Join(t.TempDir(), "checkpoints")
	check(os.WriteFile(p.checkpoint, []byte(must(t, old, p.state, p.dir, "audit", "checkpoint")), 0o600))
	for _, id := range []string{p.runs, p.copied, p.paused, p.files, p.booted, p.sends, p.strict} {
		sb, err := c.Get(ctx, id)
		check(err)
		p.listed[id] = sb.Info()
	}
	return p
}

// explainPolicy returns a program's decisions about requests under the policy of a sandbox.
func (p *earlierState) explainPolicy(t *testing.T, program, id string) string {
	t.Helper()
	var all strings.Builder
	for _, request := range []string{
		"GET https://api.example.com/a", "POST https://api.example.com/a", "GET https://api.example.com/admin/x",
		"GET https://ask.example.com/", "GET https://set.example.com/", "GET https://other.example.com/", "CONNECT api.example.com:22",
	} {
		stdout, stderr, err := command(t, program, p.state, p.dir, append([]string{"policy", "explain", id}, strings.Fields(request)...)...)
		if stdout == "" {
			t.Fatalf("explain the request %s: %v %s", request, err, stderr)
		}
		lines := strings.SplitN(stdout, "\n", 3)
		fmt.Fprintln(&all, lines[0], lines[1])
	}
	return all.String()
}
