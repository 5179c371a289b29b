package proxy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const (
	none   = "0000000000000000000000000000000000000000"
	old    = "1111111111111111111111111111111111111111"
	newTip = "2222222222222222222222222222222222222222"
)

// pushBody returns the body of a push: commands, and then a pack.
func pushBody(commands ...string) string {
	if len(commands) == 0 {
		return "0000"
	}
	var b bytes.Buffer
	for i, c := range commands {
		if i == 0 {
			c += "\x00 report-status side-band-64k agent=git/2"
		}
		fmt.Fprintf(&b, "%04x%s", len(c)+4, c)
	}
	b.WriteString("0000PACK" + strings.Repeat("p", 70<<10))
	return b.String()
}

const forgePolicy = `
level: minimal
git:
  push: {unlisted: ask, delete: ask, force: deny}
  remotes: [{host: git.test, repo: acme/pay, push: ["refs/heads/agent/**", "refs/heads/main"]}]
network: {unlisted: deny, hosts: [{host: git.test, rules: [{do: allow}]}]}
`

func TestPushIsDecidedByRef(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", gitServer, "git.test")
	d := &approvals{}
	b := w.newSandbox(forgePolicy)
	b.people.answer = d.answer
	for _, repo := range []string{"acme/pay.git", "acme/pay", "acme/other"} {
		// Each push begins with the list of refs, by which the server shows that it is a git
		// server.
		if code, _ := b.get("https://git.test/" + repo + "/info/refs?service=git-receive-pack"); code != 200 {
			t.Fatalf("the list of refs of %s: got %d, want 200", repo, code)
		}
	}
	send := func(repo string, commands ...string) (int, string) {
		return b.do("POST", "https://git.test/"+repo+"/git-receive-pack", pushBody(commands...), http.Header{"Content-Type": {"application/x-git-receive-pack-request"}})
	}
	for name, c := range map[string][]string{
		"create":  {"acme/pay.git", none + " " + newTip + " refs/heads/agent/x"},
		"move":    {"acme/pay.git", old + " " + newTip + " refs/heads/agent/x"},
		"by name": {"acme/pay", none + " " + newTip + " refs/heads/main"},
	} {
		before := len(up.log())
		if code, body := send(c[0], c[1:]...); code != 200 || !strings.HasPrefix(body, "hello") {
			t.Errorf("%s: got %d %q, want the push to reach the server", name, code, body)
		}
		if l := up.log(); len(l) != before+1 || l[before].Body != pushBody(c[1:]...) {
			t.Errorf("%s: upstream got another body than the push", name)
		}
	}
	before := len(up.log())
	for name, c := range map[string][]string{
		"other ref":    {"acme/pay", none + " " + newTip + " refs/heads/dev"},
		"main moves":   {"acme/pay", old + " " + newTip + " refs/heads/main"},
		"delete":       {"acme/pay", old + " " + none + " refs/heads/agent/x"},
		"tag":          {"acme/pay", none + " " + newTip + " refs/tags/v1"},
		"mixed":        {"acme/pay", none + " " + newTip + " refs/heads/agent/y", none + " " + newTip + " refs/heads/dev"},
		"other repo":   {"acme/other", none + " " + newTip + " refs/heads/agent/x"},
		"unreadable":   {"acme/pay", "garbage"},
		"escaped path": {"acme/pay", none + " " + newTip + " refs/heads/dev"},
	} {
		code, body := send(c[0], c[1:]...)
		if name == "escaped path" {
			// A server may interpret this as a push, so the refs count. It is not git's own
			// request, so the response is not in git's format.
			code, body = b.do("POST", "https://git.test/acme/pay/git-receive%2dpack", pushBody(c[1:]...), nil)
			if code != 403 || !strings.Contains(body, "rule=git.push.unlisted") {
				t.Errorf("%s: got %d %q, want a denial by git.push.unlisted", name, code, body)
			}
			continue
		}
		if code != 200 || name != "unreadable" && !strings.Contains(body, "ng refs/") || !strings.Contains(body, "crannog: blocked git push") {
			t.Errorf("%s: got %d %q, want a refusal in git's format", name, code, body)
		}
	}
	if len(up.log()) != before {
		t.Fatalf("upstream got refused pushes: %+v", up.log()[before:])
	}
	// After an approval, the same commands are allowed, with any pack.
	send("acme/pay", none+" "+newTip+" refs/heads/dev")
	all := b.people.questions()
	q := all[len(all)-1]
	if q.Kind != egress.AskPush || !strings.Contains(q.Summary, "create refs/heads/dev") {
		t.Errorf("the approval request is %+v, want one of a push that creates refs/heads/dev", q)
	}
	d.approve(q)
	if _, body := send("acme/pay", none+" "+strings.Replace(newTip, "2", "3", 1)+" refs/heads/dev"); !strings.Contains(body, "ng refs/") {
		t.Errorf("a push of another commit than approved: got %q, want a refusal", body)
	}
	if _, body := send("acme/pay", none+" "+newTip+" refs/heads/dev"); !strings.HasPrefix(body, "hello") {
		t.Errorf("the approved push: got %q, want it to reach the server", body)
	}
	hosttest.Eventually(t, "each push has an entry", func() bool { return len(b.records.all(egress.KindGit)) == 15 })
	// Git sends an empty push to check whether it must log in.
	if code, body := send("acme/pay"); code != 200 || !strings.HasPrefix(body, "hello") {
		t.Errorf("the empty push: got %d %s, want it to reach the server", code, body)
	}
}

func TestFetchNeedsOneApproval(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", gitServer, "git.test")
	d := &approvals{}
	b := w.newSandbox(strings.Replace(forgePolicy, "git:\n", "git:\n  fetch: ask\n", 1))
	b.people.answer = d.answer
	refs := "https://git.test/acme/other/info/refs?service=git-upload-pack"
	if code, _ := b.get(refs); code != 403 {
		t.Errorf("an unapproved fetch: got %d, want 403", code)
	}
	d.approve(b.people.questions()[0])
	if code, _ := b.get(refs); code != 200 {
		t.Errorf("the refs of the approved fetch: got %d, want 200", code)
	}
	q := b.people.questions()[0]
	if q.Facts["method"] != "GET" || q.Facts["target"] != refs || q.Facts["body_sha256"] != hexHash("") || !strings.Contains(q.Facts["covers"], "/acme/other/git-upload-pack") {
		t.Errorf("the approval request has the facts %v", q.Facts)
	}
	for _, body := range []string{"0000", pktLine("command=fetch") + "0001" + pktLine("want "+newTip) + "0000"} {
		if code, _ := b.do("POST", "https://git.test/acme/other/git-upload-pack", body, http.Header{"Content-Type": {fetchType}}); code != 200 {
			t.Errorf("the pack of the approved fetch: got %d, want 200", code)
		}
	}
	if code, _ := b.get("https://git.test/acme/third/info/refs?service=git-upload-pack"); code != 403 {
		t.Errorf("a fetch from another repository: got %d, want 403", code)
	}
	if code, _ := b.get("https://git.test/acme/pay/info/refs?service=git-upload-pack"); code != 200 {
		t.Errorf("a fetch from a listed repository: got %d, want 200", code)
	}
	if len(up.log()) != 4 {
		t.Errorf("upstream got %+v, want 4 requests", up.log())
	}
}

func pktLine(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// A fetch from a listed remote sends a POST but writes nothing. If writes need an approval, the
// fetch does not, in each version of the protocol. A policy change that still lists the remote does
// not end the fetch.
func TestFetchOfListedRemoteNeedsNoApproval(t *testing.T) {
	w := newEnvironment(t)
	hold := make(chan struct{})
	up := w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Git-Protocol") == "hold" {
			<-hold
		}
		gitServer(rw, r)
	}, "git.test")
	text := strings.Replace(forgePolicy, "unlisted: deny, hosts", "unlisted: deny, writes: ask, hosts", 1)
	b := w.newSandbox(text)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, pktLine("want "+newTip+" ofs-delta")+"0000"+pktLine("done\n"))
	z.Close()
	post := func(repo, body string, more ...string) int {
		code, _ := b.do("POST", "https://git.test/"+repo+"/git-upload-pack", body, withContentType(fetchType, more...))
		return code
	}
	for _, repo := range []string{"acme/pay", "acme/pay.git"} {
		if code := post(repo, "0000"); code != 403 {
			t.Errorf("%s: a POST before the server is known as git's: got %d, want 403", repo, code)
		}
		if code, _ := b.get("https://git.test/" + repo + "/info/refs?service=git-upload-pack"); code != 200 {
			t.Errorf("%s: refs: got %d, want 200", repo, code)
		}
		asked := len(b.people.questions())
		for _, c := range []struct{ body, encoding string }{
			{"0000", "identity"}, {pktLine("command=ls-refs\n") + "0001" + pktLine("peel") + "0000", "identity"}, {packed.String(), "gzip"},
		} {
			if code := post(repo, c.body, "Content-Encoding", c.encoding); code != 200 {
				t.Errorf("%s: fetch with %q: got %d, want 200", repo, c.body, code)
			}
			if l := up.log(); l[len(l)-1].Body != c.body {
				t.Errorf("%s: upstream got the body %q", repo, l[len(l)-1].Body)
			}
		}
		if q := b.people.questions(); len(q) != asked {
			t.Errorf("%s: a fetch caused the approval requests %+v, want none", repo, q[asked:])
		}
		for _, body := range []string{`{"to": "evil"}`, "0000evil", pktLine("want "+newTip) + "0000evil"} {
			if code := post(repo, body); code != 403 {
				t.Errorf("%s: the body %q, which is no fetch: got %d, want 403", repo, body, code)
			}
		}
		// A list of refs from another repository does not make this one known.
		if code, _ := b.do("POST", "https://git.test/"+repo+"x/git-upload-pack", "0000", withContentType(fetchType)); code != 403 {
			t.Errorf("%s: another repository: got %d, want 403", repo, code)
		}
	}
	done := make(chan int, 1)
	before := len(up.log())
	go func() { done <- post("acme/pay", "0000", "Git-Protocol", "hold") }()
	hosttest.Eventually(t, "the fetch has reached the server", func() bool { return len(up.log()) > before })
	if err := b.Update(compiled(t, text+"approvals: {timeout: 59m}\n"), nil); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if code := <-done; code != 200 {
		t.Errorf("a fetch during a policy change: got %d, want 200", code)
	}
	if err := b.Update(compiled(t, strings.Replace(text, "remotes: [{host: git.test, repo: acme/pay,", "remotes: [{host: git.test, repo: acme/gone,", 1)), nil); err != nil {
		t.Fatal(err)
	}
	if code := post("acme/pay", "0000"); code != 403 {
		t.Errorf("a fetch from a remote that is no longer listed: got %d, want 403", code)
	}
}
