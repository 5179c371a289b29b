package proxy

import (
	"net/http"
	"strings"
	"testing"
)

// Content types of git's requests, which any program can send to any server.
const (
	fetchType = "application/x-git-upload-pack-request"
	pushType  = "application/x-git-receive-pack-request"
)

func typed(kind string, more ...string) http.Header {
	h := http.Header{"Content-Type": {kind}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// Finding S1: a request that looks like git's was judged as a fetch or a push,
// which skipped the check for publications.
func TestFindingS1GitHidesNoPublication(t *testing.T) {
	w := newEnvironment(t)
	hosts := []string{"crates.test", "oci.test", "registry.npmjs.org"}
	up := w.serve("443", nil, hosts...)
	b := w.newSandbox(`
level: minimal
packages: {publish: ask}
network: {unlisted: deny, hosts: [{host: crates.test, rules: [{do: allow}]}, {host: oci.test, rules: [{do: allow}]}, {host: registry.npmjs.org, encoded_slash: true, rules: [{do: allow}]}]}
git: {remotes: [{host: oci.test, repo: "**", push: ["refs/**"]}, {host: crates.test, repo: "**"}, {host: registry.npmjs.org, repo: "**"}]}
`)
	desk := &approvals{}
	b.people.answer = desk.answer
	for name, c := range map[string]struct {
		method, url, body string
		header            http.Header
	}{
		"a crate, by content type":      {"PUT", "https://crates.test/api/v1/crates/new", "crate", typed(fetchType)},
		"a manifest, by content type":   {"DELETE", "https://oci.test/v2/acme/pay/manifests/v1", "0000", typed(pushType)},
		"a package named git":           {"PUT", "https://registry.npmjs.org/@evil%2fx/git-upload-pack", "{}", typed("application/json")},
		"a tag named as a fetch":        {"PUT", "https://oci.test/v2/acme/pay/manifests/git-upload-pack", "{}", nil},
		"a tag named as a push":         {"DELETE", "https://oci.test/v2/acme/pay/manifests/git-receive-pack", "0000", nil},
		"a tag of a list of refs":       {"PUT", "https://oci.test/v2/acme/pay/manifests/info/refs", "{}", typed(fetchType)},
		"a manifest, by another method": {"POST", "https://oci.test/v2/acme/pay/manifests/git-upload-pack", "{}", typed(fetchType, "X-HTTP-Method-Override", "PUT")},
	} {
		asked := len(b.people.questions())
		code, body := b.do(c.method, c.url, c.body, c.header)
		if code != 403 || !strings.Contains(body, "approval_pending") {
			t.Errorf("%s: %d %.200s", name, code, body)
		}
		if q := b.people.questions(); len(q) != asked+1 || q[asked].Kind != "pkg.publish" {
			t.Errorf("%s: asked %+v", name, q[asked:])
		}
	}
	// Control: the same hosts, a request that publishes nothing.
	if code, _ := b.get("https://crates.test/api/v1/crates"); code != 200 {
		t.Errorf("the control: %d", code)
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream saw %+v", up.log())
	}
}

// Finding S1: a request that looks like a fetch needed no permission for writes.
func TestFindingS1GitOpensNoWrites(t *testing.T) {
	w := newEnvironment(t)
	// It is not a git server: it answers everything in its own way.
	up := w.serve("443", nil, "api.test")
	b := w.newSandbox(`
level: light
network: {unlisted: deny, writes: ask, hosts: [{host: api.test, rules: [{do: allow}]}]}
git: {fetch: allow, remotes: [{host: api.test, repo: "acme/**", push: ["refs/**"]}]}
`)
	b.people.answer = (&approvals{}).answer
	if code, _ := b.get("https://api.test/acme/pay/info/refs?service=git-upload-pack"); code != 200 {
		t.Fatalf("the control, a read: %d", code)
	}
	for name, c := range map[string]struct {
		method, path, body string
		header             http.Header
	}{
		"a deletion, by content type":  {"DELETE", "/acme/pay", "", typed(fetchType)},
		"a payment, by content type":   {"POST", "/acme/payments", `{"to": "evil"}`, typed(fetchType)},
		"a payment, by path":           {"POST", "/acme/payments/git-upload-pack", `{"to": "evil"}`, typed("application/json")},
		"a file, by path":              {"PUT", "/acme/files/git-upload-pack", "stolen", nil},
		"another remote":               {"POST", "/other/pay/git-upload-pack", "0000", typed(fetchType)},
		"no server said that it is":    {"POST", "/acme/pay/git-upload-pack", "0000", typed(fetchType)},
		"a deletion as an empty push":  {"DELETE", "/acme/pay", "0000", typed(pushType)},
		"an order as an empty push":    {"POST", "/acme/pay/git-receive-pack", "0000", typed("text/plain")},
		"a query that changes it":      {"POST", "/acme/pay/git-upload-pack?action=delete", "0000", typed(fetchType)},
		"a header that changes it":     {"POST", "/acme/pay/git-upload-pack", "0000", typed(fetchType, "X-HTTP-Method-Override", "DELETE")},
		"what a server takes for both": {"POST", "/acme/pay/git-upload-pack", "0000", http.Header{"Content-Type": {fetchType, "application/json"}}},
	} {
		asked := len(b.people.questions())
		code, body := b.do(c.method, "https://api.test"+c.path, c.body, c.header)
		if code != 403 || !strings.Contains(body, "approval_pending") {
			t.Errorf("%s: %d %.200s", name, code, body)
		}
		q := b.people.questions()
		if len(q) != asked+1 {
			t.Fatalf("%s: asked %+v", name, q[asked:])
		}
		facts := q[asked].Facts
		if facts["method"] != c.method || facts["target"] != "https://api.test"+c.path || len(facts["body_sha256"]) != 64 {
			t.Errorf("%s: the question has %v", name, facts)
		}
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream saw %+v", up.log())
	}
}

// Finding S1: one approval of a fetch let other requests through for ten minutes.
func TestFindingS1AFetchIsApprovedAndNothingElse(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", gitServer, "git.test")
	d := &approvals{}
	b := w.newSandbox(strings.NewReplacer("git:\n", "git:\n  fetch: ask\n", "unlisted: deny, hosts", "unlisted: deny, writes: ask, hosts").Replace(forge))
	b.people.answer = d.answer
	refs := "https://git.test/acme/other/info/refs?service=git-upload-pack"
	b.get(refs)
	d.approve(b.people.questions()[0])
	if code, _ := b.get(refs); code != 200 {
		t.Fatalf("the control, the refs: %d", code)
	}
	if code, _ := b.get(refs); code != 200 {
		t.Fatalf("the control, the refs again: %d", code)
	}
	before := len(up.log())
	for name, c := range map[string]struct {
		method, path, body string
		header             http.Header
	}{
		"a deletion of the repository": {"DELETE", "/acme/other", "", typed(fetchType)},
		"a change of the repository":   {"PUT", "/acme/other.git/git-upload-pack", "x", nil},
		"a write that no rule lists":   {"POST", "/acme/other/git-upload-pack", "0000", typed(fetchType)},
		"an export by query":           {"GET", "/acme/other/info/refs?service=git-upload-pack&export=all", "", nil},
		"an order by header":           {"GET", "/acme/other/info/refs?service=git-upload-pack", "", http.Header{"X-Http-Method-Override": {"DELETE"}}},
		"a body that is no fetch":      {"POST", "/acme/other/git-upload-pack", `{"to": "evil"}`, typed(fetchType)},
	} {
		code, body := b.do(c.method, "https://git.test"+c.path, c.body, c.header)
		if code != 403 {
			t.Errorf("%s: %d %.200s", name, code, body)
		}
	}
	if got := up.log()[before:]; len(got) != 0 {
		t.Errorf("upstream saw %+v", got)
	}
}

// Finding S1: an approved push was bound only to its commands, not to the data after them or to its
// destination.
func TestFindingS1AnApprovedPushIsNotAnotherRequest(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "git.test")
	d := &approvals{}
	b := w.newSandbox(forge)
	b.people.answer = d.answer
	head, _, _ := strings.Cut(pushBody(none+" "+tip+" refs/heads/dev"), "PACK")
	form := func(text string) string {
		// A server ignores what precedes the first boundary of a form.
		return head + "\r\n--b\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\n" + text + "\r\n--b--\r\n"
	}
	kind := http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}
	send := func(text string) int {
		code, _ := b.do("POST", "https://git.test/acme/pay/git-receive-pack", form(text), kind)
		return code
	}
	if code := send("friend"); code != 403 || len(b.people.questions()) != 1 {
		t.Fatalf("unasked: %d, %+v", code, b.people.questions())
	}
	d.approve(b.people.questions()[0])
	if code := send("evil"); code != 403 {
		t.Errorf("approved for a friend, sent to another: %d", code)
	}
	if code := send("friend"); code != 200 {
		t.Errorf("the control: %d", code)
	}
	if l := up.log(); len(l) != 1 || !strings.Contains(l[0].Body, "friend") {
		t.Errorf("upstream saw %+v", l)
	}
	// A server that accepts pushes there may read something else than a pack in another way.
	w.serve("443", gitServer, "pushes.test")
	b = w.newSandbox(strings.ReplaceAll(forge, "git.test", "pushes.test"))
	b.people.answer = d.answer
	if code, _ := b.get("https://pushes.test/acme/pay/info/refs?service=git-receive-pack"); code != 200 {
		t.Fatalf("refs: %d", code)
	}
	follows := func(text string) string {
		_, body := b.do("POST", "https://pushes.test/acme/pay/git-receive-pack", head+text, typed(pushType))
		return body
	}
	follows("to a friend")
	d.approve(b.people.questions()[0])
	if got := follows("to evil"); strings.HasPrefix(got, "hello") {
		t.Error("what follows the commands is another text")
	}
	if got := follows("to a friend"); !strings.HasPrefix(got, "hello") {
		t.Errorf("the control: %s", got)
	}
	// A request that is not a push does not get an answer in git's format.
	b = w.newSandbox(strings.Replace(forge, "unlisted: deny, hosts", "unlisted: deny, writes: ask, hosts", 1))
	for _, method := range []string{"DELETE", "PUT", "POST"} {
		if code, _ := b.do(method, "https://git.test/acme/pay", pushBody(none+" "+tip+" refs/heads/dev"), typed(pushType)); code != 403 {
			t.Errorf("%s that is refused is answered with %d", method, code)
		}
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream saw %+v", up.log())
	}
}

// gitServer answers like a git server without refs.
func gitServer(rw http.ResponseWriter, r *http.Request) {
	service := r.URL.Query().Get("service")
	if strings.HasSuffix(r.URL.Path, "/info/refs") && service != "" {
		rw.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
		line := "# service=" + service + "\n"
		_, _ = rw.Write([]byte(pktLine(line) + "0000" + pktLine("version 2\n") + "0000"))
		return
	}
	_, _ = rw.Write([]byte("hello from " + r.Host))
}
