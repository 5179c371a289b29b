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

func withContentType(kind string, more ...string) http.Header {
	h := http.Header{"Content-Type": {kind}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// Attack: a request that looks like git's. Regression: it was decided as a fetch or a push, without
// the check for publications.
func TestPublicationInGitFormIsDetected(t *testing.T) {
	w := newEnvironment(t)
	hosts := []string{"crates.test", "oci.test", "registry.npmjs.org"}
	up := w.serve("443", nil, hosts...)
	b := w.newSandbox(`
level: minimal
packages: {publish: ask}
network: {unlisted: deny, hosts: [{host: crates.test, rules: [{do: allow}]}, {host: oci.test, rules: [{do: allow}]}, {host: registry.npmjs.org, encoded_slash: true, rules: [{do: allow}]}]}
git: {remotes: [{host: oci.test, repo: "**", push: ["refs/**"]}, {host: crates.test, repo: "**"}, {host: registry.npmjs.org, repo: "**"}]}
`)
	approver := &approvals{}
	b.people.answer = approver.answer
	for name, c := range map[string]struct {
		method, url, body string
		header            http.Header
	}{
		"a crate, by content type":      {"PUT", "https://crates.test/api/v1/crates/new", "crate", withContentType(fetchType)},
		"a manifest, by content type":   {"DELETE", "https://oci.test/v2/acme/pay/manifests/v1", "0000", withContentType(pushType)},
		"a package named git":           {"PUT", "https://registry.npmjs.org/@evil%2fx/git-upload-pack", "{}", withContentType("application/json")},
		"a tag named as a fetch":        {"PUT", "https://oci.test/v2/acme/pay/manifests/git-upload-pack", "{}", nil},
		"a tag named as a push":         {"DELETE", "https://oci.test/v2/acme/pay/manifests/git-receive-pack", "0000", nil},
		"a tag of a list of refs":       {"PUT", "https://oci.test/v2/acme/pay/manifests/info/refs", "{}", withContentType(fetchType)},
		"a manifest, by another method": {"POST", "https://oci.test/v2/acme/pay/manifests/git-upload-pack", "{}", withContentType(fetchType, "X-HTTP-Method-Override", "PUT")},
	} {
		asked := len(b.people.questions())
		code, body := b.do(c.method, c.url, c.body, c.header)
		if code != 403 || !strings.Contains(body, "approval_pending") {
			t.Errorf("%s: got %d %.200s, want a pending approval", name, code, body)
		}
		if q := b.people.questions(); len(q) != asked+1 || q[asked].Kind != "pkg.publish" {
			t.Errorf("%s: the approval requests are %+v, want one of a publication", name, q[asked:])
		}
	}
	// Control: a request to the same host that publishes nothing.
	if code, _ := b.get("https://crates.test/api/v1/crates"); code != 200 {
		t.Errorf("control: got %d, want 200", code)
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream got %+v, want the control only", up.log())
	}
}

// Attack: a write that looks like a fetch. Regression: it needed no permission for writes.
func TestWriteInGitFormNeedsApproval(t *testing.T) {
	w := newEnvironment(t)
	// This server is not a git server: it answers every request with the same text.
	up := w.serve("443", nil, "api.test")
	b := w.newSandbox(`
level: light
network: {unlisted: deny, writes: ask, hosts: [{host: api.test, rules: [{do: allow}]}]}
git: {fetch: allow, remotes: [{host: api.test, repo: "acme/**", push: ["refs/**"]}]}
`)
	b.people.answer = (&approvals{}).answer
	if code, _ := b.get("https://api.test/acme/pay/info/refs?service=git-upload-pack"); code != 200 {
		t.Fatalf("control: a read: got %d, want 200", code)
	}
	for name, c := range map[string]struct {
		method, path, body string
		header             http.Header
	}{
		"a deletion, by content type": {"DELETE", "/acme/pay", "", withContentType(fetchType)},
		"a payment, by content type":  {"POST", "/acme/payments", `{"to": "evil"}`, withContentType(fetchType)},
		"a payment, by path":          {"POST", "/acme/payments/git-upload-pack", `{"to": "evil"}`, withContentType("application/json")},
		"a file, by path":             {"PUT", "/acme/files/git-upload-pack", "stolen", nil},
		"another remote":              {"POST", "/other/pay/git-upload-pack", "0000", withContentType(fetchType)},
		"server not known as git's":   {"POST", "/acme/pay/git-upload-pack", "0000", withContentType(fetchType)},
		"a deletion as an empty push": {"DELETE", "/acme/pay", "0000", withContentType(pushType)},
		"a POST as an empty push":     {"POST", "/acme/pay/git-receive-pack", "0000", withContentType("text/plain")},
		"a query with an action":      {"POST", "/acme/pay/git-upload-pack?action=delete", "0000", withContentType(fetchType)},
		"a method override":           {"POST", "/acme/pay/git-upload-pack", "0000", withContentType(fetchType, "X-HTTP-Method-Override", "DELETE")},
		"two content types":           {"POST", "/acme/pay/git-upload-pack", "0000", http.Header{"Content-Type": {fetchType, "application/json"}}},
	} {
		asked := len(b.people.questions())
		code, body := b.do(c.method, "https://api.test"+c.path, c.body, c.header)
		if code != 403 || !strings.Contains(body, "approval_pending") {
			t.Errorf("%s: got %d %.200s, want a pending approval", name, code, body)
		}
		q := b.people.questions()
		if len(q) != asked+1 {
			t.Fatalf("%s: the approval requests are %+v, want one", name, q[asked:])
		}
		facts := q[asked].Facts
		if facts["method"] != c.method || facts["target"] != "https://api.test"+c.path || len(facts["body_sha256"]) != 64 {
			t.Errorf("%s: the approval request has the facts %v", name, facts)
		}
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream got %+v, want the control only", up.log())
	}
}

// Regression: one approval of a fetch allowed other requests for ten minutes.
func TestFetchApprovalCoversOnlyFetch(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", gitServer, "git.test")
	d := &approvals{}
	b := w.newSandbox(strings.NewReplacer("git:\n", "git:\n  fetch: ask\n", "unlisted: deny, hosts", "unlisted: deny, writes: ask, hosts").Replace(forgePolicy))
	b.people.answer = d.answer
	refs := "https://git.test/acme/other/info/refs?service=git-upload-pack"
	b.get(refs)
	d.approve(b.people.questions()[0])
	if code, _ := b.get(refs); code != 200 {
		t.Fatalf("control: the refs: got %d, want 200", code)
	}
	if code, _ := b.get(refs); code != 200 {
		t.Fatalf("control: the refs again: got %d, want 200", code)
	}
	before := len(up.log())
	for name, c := range map[string]struct {
		method, path, body string
		header             http.Header
	}{
		"a deletion of the repository": {"DELETE", "/acme/other", "", withContentType(fetchType)},
		"a change of the repository":   {"PUT", "/acme/other.git/git-upload-pack", "x", nil},
		"a write that no rule lists":   {"POST", "/acme/other/git-upload-pack", "0000", withContentType(fetchType)},
		"an export by query":           {"GET", "/acme/other/info/refs?service=git-upload-pack&export=all", "", nil},
		"an order by header":           {"GET", "/acme/other/info/refs?service=git-upload-pack", "", http.Header{"X-Http-Method-Override": {"DELETE"}}},
		"a body that is no fetch":      {"POST", "/acme/other/git-upload-pack", `{"to": "evil"}`, withContentType(fetchType)},
	} {
		code, body := b.do(c.method, "https://git.test"+c.path, c.body, c.header)
		if code != 403 {
			t.Errorf("%s: got %d %.200s, want 403", name, code, body)
		}
	}
	if got := up.log()[before:]; len(got) != 0 {
		t.Errorf("upstream got %+v after the controls, want nothing", got)
	}
}

// Regression: an approval of a push was bound only to its commands, not to the data after them or
// to its destination.
func TestPushApprovalCoversWholeBody(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "git.test")
	d := &approvals{}
	b := w.newSandbox(forgePolicy)
	b.people.answer = d.answer
	head, _, _ := strings.Cut(pushBody(none+" "+newTip+" refs/heads/dev"), "PACK")
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
		t.Fatalf("an unapproved request: got %d, approval requests %+v, want 403 and one", code, b.people.questions())
	}
	d.approve(b.people.questions()[0])
	if code := send("evil"); code != 403 {
		t.Errorf("another body than the approved one: got %d, want 403", code)
	}
	if code := send("friend"); code != 200 {
		t.Errorf("control: the approved body: got %d, want 200", code)
	}
	if l := up.log(); len(l) != 1 || !strings.Contains(l[0].Body, "friend") {
		t.Errorf("upstream got %+v, want the approved request", l)
	}
	// A server that accepts pushes may interpret data other than a pack in another way.
	w.serve("443", gitServer, "pushes.test")
	b = w.newSandbox(strings.ReplaceAll(forgePolicy, "git.test", "pushes.test"))
	b.people.answer = d.answer
	if code, _ := b.get("https://pushes.test/acme/pay/info/refs?service=git-receive-pack"); code != 200 {
		t.Fatalf("the list of refs: got %d, want 200", code)
	}
	sendAfterCommands := func(text string) string {
		_, body := b.do("POST", "https://pushes.test/acme/pay/git-receive-pack", head+text, withContentType(pushType))
		return body
	}
	sendAfterCommands("to a friend")
	d.approve(b.people.questions()[0])
	if got := sendAfterCommands("to evil"); strings.HasPrefix(got, "hello") {
		t.Error("a push with other data after the commands than approved reached the server")
	}
	if got := sendAfterCommands("to a friend"); !strings.HasPrefix(got, "hello") {
		t.Errorf("control: the approved push: got %s", got)
	}
	// A request that is not a push does not get an answer in git's format.
	b = w.newSandbox(strings.Replace(forgePolicy, "unlisted: deny, hosts", "unlisted: deny, writes: ask, hosts", 1))
	for _, method := range []string{"DELETE", "PUT", "POST"} {
		if code, _ := b.do(method, "https://git.test/acme/pay", pushBody(none+" "+newTip+" refs/heads/dev"), withContentType(pushType)); code != 403 {
			t.Errorf("%s in the form of a push: got %d, want 403", method, code)
		}
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream got %+v, want one request", up.log())
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
