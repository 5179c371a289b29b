package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/hosttest"
)

const (
	none = "0000000000000000000000000000000000000000"
	old  = "1111111111111111111111111111111111111111"
	tip  = "2222222222222222222222222222222222222222"
)

// pushBody is what git sends: commands, and then a pack.
func pushBody(commands ...string) string {
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

const forge = `
level: minimal
git:
  push: {unlisted: ask, delete: ask, force: deny}
  remotes: [{host: git.test, repo: acme/pay, push: ["refs/heads/agent/**", "refs/heads/main"]}]
network: {unlisted: deny, hosts: [{host: git.test, rules: [{do: allow}]}]}
`

func TestA6PushesAreJudgedByRef(t *testing.T) {
	w := newWorld(t)
	up := w.serve("443", nil, "git.test")
	d := &desk{}
	b := w.box(forge)
	b.people.answer = d.answer
	send := func(repo string, commands ...string) (int, string) {
		return b.do("POST", "https://git.test/"+repo+"/git-receive-pack", pushBody(commands...), http.Header{"Content-Type": {"application/x-git-receive-pack-request"}})
	}
	for name, c := range map[string][]string{
		"create":  {"acme/pay.git", none + " " + tip + " refs/heads/agent/x"},
		"move":    {"acme/pay.git", old + " " + tip + " refs/heads/agent/x"},
		"by name": {"acme/pay", none + " " + tip + " refs/heads/main"},
	} {
		before := len(up.log())
		if code, body := send(c[0], c[1:]...); code != 200 || !strings.HasPrefix(body, "hello") {
			t.Errorf("%s: %d %q", name, code, body)
		}
		if l := up.log(); len(l) != before+1 || l[before].Body != pushBody(c[1:]...) {
			t.Errorf("%s: upstream did not get the bytes", name)
		}
	}
	before := len(up.log())
	for name, c := range map[string][]string{
		"other ref":    {"acme/pay", none + " " + tip + " refs/heads/dev"},
		"main moves":   {"acme/pay", old + " " + tip + " refs/heads/main"},
		"delete":       {"acme/pay", old + " " + none + " refs/heads/agent/x"},
		"tag":          {"acme/pay", none + " " + tip + " refs/tags/v1"},
		"mixed":        {"acme/pay", none + " " + tip + " refs/heads/agent/y", none + " " + tip + " refs/heads/dev"},
		"other repo":   {"acme/other", none + " " + tip + " refs/heads/agent/x"},
		"unreadable":   {"acme/pay", "garbage"},
		"escaped path": {"acme/pay", none + " " + tip + " refs/heads/dev"},
	} {
		code, body := send(c[0], c[1:]...)
		if name == "escaped path" {
			code, body = b.do("POST", "https://git.test/acme/pay/git-receive%2dpack", pushBody(c[1:]...), nil)
		}
		if code != 200 || name != "unreadable" && !strings.Contains(body, "ng refs/") || !strings.Contains(body, "crannog: blocked git push") {
			t.Errorf("%s: %d %q", name, code, body)
		}
	}
	if len(up.log()) != before {
		t.Fatalf("upstream saw %+v", up.log()[before:])
	}
	// Approved, the same refs pass, in other bytes too.
	send("acme/pay", none+" "+tip+" refs/heads/dev")
	all := b.people.questions()
	q := all[len(all)-1]
	if q.Kind != causeway.AskPush || !strings.Contains(q.Summary, "create refs/heads/dev") {
		t.Errorf("question %+v", q)
	}
	d.approve(q)
	if _, body := send("acme/pay", none+" "+strings.Replace(tip, "2", "3", 1)+" refs/heads/dev"); !strings.Contains(body, "ng refs/") {
		t.Errorf("another commit: %q", body)
	}
	if _, body := send("acme/pay", none+" "+tip+" refs/heads/dev"); !strings.HasPrefix(body, "hello") {
		t.Errorf("approved: %q", body)
	}
	hosttest.Eventually(t, "records of pushes", func() bool { return len(b.records.all(causeway.KindGit)) == 15 })
	// The empty push by which git looks whether it must log in.
	if code, body := b.do("POST", "https://git.test/acme/pay/git-receive-pack", "0000", nil); code != 200 || !strings.HasPrefix(body, "hello") {
		t.Errorf("probe: %d %s", code, body)
	}
}

func TestFetchIsAskedOnce(t *testing.T) {
	w := newWorld(t)
	up := w.serve("443", nil, "git.test")
	d := &desk{}
	b := w.box(strings.Replace(forge, "git:\n", "git:\n  fetch: ask\n", 1))
	b.people.answer = d.answer
	refs := "https://git.test/acme/other/info/refs?service=git-upload-pack"
	if code, _ := b.get(refs); code != 403 {
		t.Errorf("unasked: %d", code)
	}
	d.approve(b.people.questions()[0])
	if code, _ := b.get(refs); code != 200 {
		t.Errorf("refs: %d", code)
	}
	if code, _ := b.do("POST", "https://git.test/acme/other/git-upload-pack", "0000", nil); code != 200 {
		t.Errorf("pack: %d", code)
	}
	if code, _ := b.get("https://git.test/acme/third/info/refs?service=git-upload-pack"); code != 403 {
		t.Errorf("another repository: %d", code)
	}
	if code, _ := b.get("https://git.test/acme/pay/info/refs?service=git-upload-pack"); code != 200 {
		t.Errorf("a listed repository: %d", code)
	}
	if len(up.log()) != 3 {
		t.Errorf("upstream saw %+v", up.log())
	}
}
