package git_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// relay is a small proxy in front of git's own http-backend: it parses each push, and forwards or
// rejects it.
type relay struct {
	t       *testing.T
	url     string
	bare    string // the server's repository
	work    string // the client's repository
	env     []string
	backend http.Handler

	mu     sync.Mutex
	rules  pushRules
	passed int // pushes with commands that reached the server
	probes int
	chunks int    // requests without a length
	last   []byte // body of the last push, as it arrived
}

func newRelay(t *testing.T, rules pushRules) *relay {
	t.Helper()
	hosttest.Need(t, hosttest.Git)
	dir := t.TempDir()
	r := &relay{
		t: t, rules: rules, bare: filepath.Join(dir, "acme", "pay.git"), work: filepath.Join(dir, "work"),
		env: []string{
			"PATH=/usr/bin:/bin", "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		},
	}
	where, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	r.backend = &cgi.Handler{
		Path: strings.TrimSpace(string(where)) + "/git-http-backend",
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=agent", "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"},
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL + "/acme/pay.git"
	r.must("init", "-q", "--bare", r.bare)
	r.must("-C", r.bare, "config", "receive.advertisePushOptions", "true")
	r.must("init", "-q", "-b", "main", r.work)
	r.commit("first")
	return r
}

func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	operation, repository := git.Classify(q.Method, q.URL.EscapedPath(), q.URL.RawQuery, q.Header.Get("Content-Type"))
	body, err := io.ReadAll(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if operation != git.Push {
		q.Body = io.NopCloser(bytes.NewReader(body))
		r.pass(w, q)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if repository != "acme/pay" {
		r.t.Errorf("the repository of the push is %q, want acme/pay", repository)
	}
	r.last = body
	if q.ContentLength < 0 {
		r.chunks++
	}
	// A reader that returns one byte at a time detects code that expects more from a single read.
	push, err := git.Parse(oneByte{bytes.NewReader(body)}, q.Header.Get("Content-Encoding"))
	effect, reasons := egress.Deny, []string(nil)
	note := fmt.Sprint(err)
	if err == nil {
		effect, reasons = r.rules.decideRequest(push)
		note = "The policy of this sandbox refuses the push.\nAllow it with: crannog policy allow-push"
	}
	if effect != egress.Allow {
		w.Header().Set("Content-Type", git.ContentType)
		_, _ = w.Write(push.Refusal(reasons, note))
		return
	}
	if push.Probe() {
		r.probes++
	} else {
		r.passed++
	}
	again, err := io.ReadAll(push.Body)
	if err != nil {
		r.t.Error(err)
	}
	if push.Decoded {
		q.Header.Del("Content-Encoding")
	} else if !bytes.Equal(again, body) {
		r.t.Error("the forwarded body differs from the received one")
	}
	q.Body, q.ContentLength, q.TransferEncoding = io.NopCloser(bytes.NewReader(again)), int64(len(again)), nil
	r.pass(w, q)
}

func (r *relay) pass(w http.ResponseWriter, q *http.Request) { r.backend.ServeHTTP(w, q) }

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }

func (r *relay) git(args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Env = r.env
	if _, err := os.Stat(r.work); err == nil {
		cmd.Dir = r.work
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *relay) must(args ...string) string {
	r.t.Helper()
	out, err := r.git(args...)
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

func (r *relay) commit(message string) {
	r.t.Helper()
	r.must("commit", "-q", "--allow-empty", "-m", message)
}

// refs returns the server's refs.
func (r *relay) refs() string {
	r.t.Helper()
	return strings.Join(strings.Fields(r.must("-C", r.bare, "for-each-ref", "--format=%(refname)")), " ")
}

// wantRefused pushes, and requires that the push fails and that git prints the reason.
func (r *relay) wantRefused(want string, args ...string) {
	r.t.Helper()
	before, passed := r.refs(), r.passed
	out, err := r.git(append([]string{"push"}, args...)...)
	if err == nil {
		r.t.Errorf("push %v succeeds:\n%s", args, out)
	}
	for _, line := range []string{want, "remote: Allow it with: crannog policy allow-push"} {
		if !strings.Contains(out, line) {
			r.t.Errorf("push %v does not print %q:\n%s", args, line, out)
		}
	}
	for _, line := range []string{"hung up", "Everything up-to-date", "protocol error"} {
		if strings.Contains(out, line) {
			r.t.Errorf("push %v prints %q:\n%s", args, line, out)
		}
	}
	if after := r.refs(); after != before || r.passed != passed {
		r.t.Errorf("push %v reached the server: %s, then %s", args, before, after)
	}
}

var agentRules = pushRules{Allow: []string{"refs/heads/agent/**"}, Unlisted: egress.Ask}

// Threat A6 (docs/reference/threat-model.md): the git program sends pushes to git's own server
// through the relay.
func TestGitPushIsCheckedByRules(t *testing.T) {
	r := newRelay(t, agentRules)
	r.must("push", r.url, "main:refs/heads/agent/x")
	if got := r.refs(); got != "refs/heads/agent/x" || r.passed != 1 {
		t.Fatalf("after an allowed push the server has the refs %q, %d pushes passed", got, r.passed)
	}
	r.must("tag", "v1")
	r.must("tag", "-a", "-m", "two", "v2")
	r.wantRefused("! [remote rejected] main -> main (no rule lists this ref)", r.url, "main")
	r.wantRefused("! [remote rejected] agent/x (a deletion)", r.url, ":agent/x")
	r.wantRefused("! [remote rejected] v1 -> v1 (a tag that no rule lists)", r.url, "v1")
	r.wantRefused("! [remote rejected] v2 -> v2 (a tag that no rule lists)", r.url, "v2")
	r.wantRefused("! [remote rejected] main -> main (no rule lists this ref)", r.url, "main:refs/heads/agent/y", "main")
	r.wantRefused("! [remote rejected] main -> agent/y (another ref of this push was refused)", r.url, "main:refs/heads/agent/y", "main")
	r.wantRefused("(no rule lists this ref)", "--atomic", r.url, "main:refs/heads/agent/y", "main")
	r.wantRefused("(no rule lists this ref)", "--mirror", r.url)
	r.wantRefused("(a push option may be an order to the server)", "-o", "merge", r.url, "main:refs/heads/agent/y")
	r.rules.Options = egress.Allow
	r.must("push", "-o", "merge", r.url, "main:refs/heads/agent/y")

	// A fast-forward looks like any other change.
	r.commit("second")
	r.wantRefused("(the ref exists, and this push may drop commits of it)", r.url, "main:refs/heads/agent/x")
	r.must("commit", "-q", "--amend", "--allow-empty", "-m", "rewritten")
	r.wantRefused("(the ref exists, and this push may drop commits of it)", "--force", r.url, "main:refs/heads/agent/x")
	r.rules.Move = []string{"refs/heads/agent/**"}
	r.must("push", r.url, "main:refs/heads/agent/x")
	r.rules.Delete = egress.Allow
	r.must("push", r.url, ":refs/heads/agent/y")
	if got := r.refs(); got != "refs/heads/agent/x" {
		t.Errorf("after all pushes the server has the refs %q, want agent/x only", got)
	}
	if got := r.must("clone", "-q", "--depth=1", "-b", "agent/x", r.url, filepath.Join(t.TempDir(), "clone")); got != "" {
		t.Errorf("a shallow clone prints %q, want nothing", got)
	}
}

// A pack that is larger than git's buffer is sent in chunks, after a probe.
func TestLargePushIsSentInChunks(t *testing.T) {
	r := newRelay(t, agentRules)
	blob := make([]byte, 300<<10)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(blob)
	if err := os.WriteFile(filepath.Join(r.work, "blob"), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	r.must("add", "blob")
	r.commit("large")
	r.must("-c", "http.postBuffer=65536", "push", r.url, "main:refs/heads/agent/large")
	if r.probes != 1 || r.chunks < 1 || r.passed != 1 {
		t.Errorf("%d probes, %d requests in chunks, %d pushes passed, want 1, at least 1, and 1", r.probes, r.chunks, r.passed)
	}
	r.must("config", "http.postBuffer", "65536")
	r.must("commit", "-q", "--amend", "-m", "other")
	r.wantRefused("(no rule lists this ref)", r.url, "main")
}

func TestShallowPushIsParsed(t *testing.T) {
	r := newRelay(t, agentRules)
	r.commit("second")
	r.must("push", r.url, "main:refs/heads/agent/x")
	clone := filepath.Join(t.TempDir(), "clone")
	r.must("clone", "-q", "--depth=1", "-b", "agent/x", r.url, clone)
	r.work = clone
	r.commit("third")
	r.must("push", r.url, "HEAD:refs/heads/agent/z")
	push, err := git.Parse(bytes.NewReader(r.last), "")
	if err != nil || len(push.Shallow) != 1 {
		t.Errorf("the push has the shallow lines %v, want one: %v", push.Shallow, err)
	}
	if got := r.refs(); got != "refs/heads/agent/x refs/heads/agent/z" {
		t.Errorf("the server has the refs %q, want agent/x and agent/z", got)
	}
}

// Git compresses no push, but servers accept compressed ones. A client could compress its commands
// to hide them.
func TestCompressedPushIsChecked(t *testing.T) {
	r := newRelay(t, pushRules{})
	send := func() string {
		t.Helper()
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(r.last)
		_ = z.Close()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/git-receive-pack", &packed)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/x-git-receive-pack-request")
		q.Header.Set("Content-Encoding", "gzip")
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	r.wantRefused("(no rule lists this ref)", r.url, "main:refs/heads/agent/x")
	if text := send(); !strings.Contains(text, "ng refs/heads/agent/x no rule lists this ref") || r.refs() != "" {
		t.Errorf("a compressed push without rules: got %q, the server has the refs %q", text, r.refs())
	}
	// Push again, so that the last body is an uncompressed one.
	r.wantRefused("(no rule lists this ref)", r.url, "main:refs/heads/agent/x")
	r.rules = agentRules
	if text := send(); !strings.Contains(text, "ok refs/heads/agent/x") || r.refs() != "refs/heads/agent/x" {
		t.Errorf("a compressed push that the rules allow: got %q, the server has the refs %q", text, r.refs())
	}
}
