package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
)

// An approved request, and one that publishes something, has an entry before it is sent. When the
// upstream server receives the request, the last entry is about its beginning.
func TestImportantRequestsAreRecordedFirst(t *testing.T) {
	const host = "registry.npmjs.org"
	for name, c := range map[string]struct {
		policy, method string
		matches        func(egress.Record) bool
	}{
		"an approval": {
			"level: minimal\nnetwork: {unlisted: deny, hosts: [{host: " + host + ", encoded_slash: true, rules: [{methods: [POST], paths: [\"/**\"], do: ask}]}]}\n", http.MethodPost,
			func(r egress.Record) bool { return r.Kind == egress.KindHTTP && r.Approval != "" },
		},
		"a publication": {
			"level: minimal\npackages: {publish: allow}\nnetwork: {unlisted: deny, hosts: [{host: " + host + ", encoded_slash: true, rules: [{methods: [PUT], paths: [\"/**\"], do: allow}]}]}\n",
			http.MethodPut, func(r egress.Record) bool { return r.Kind == egress.KindPublish && r.Approval == "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			started := make(chan egress.Record, 4)
			var b *testSandbox
			up := w.serve("443", func(http.ResponseWriter, *http.Request) {
				b.records.mu.Lock()
				defer b.records.mu.Unlock()
				started <- b.records.list[len(b.records.list)-1]
			}, host)
			b = w.newSandbox(c.policy)
			d := &approvals{}
			b.people.answer = d.answer
			send := func() int {
				code, _ := b.do(c.method, "https://"+host+"/@acme%2fpay", "{}", nil)
				return code
			}
			if c.method == http.MethodPost {
				if code := send(); code != 403 {
					t.Fatalf("an unapproved request: got %d, want 403", code)
				}
				d.approve(b.people.questions()[0])
			}
			if code := send(); code != 200 {
				t.Fatalf("the request: got %d, want 200", code)
			}
			if r := <-started; !r.Begins || !c.matches(r) {
				t.Errorf("when the request arrived, the last entry was %+v, want one about its beginning", r)
			}
			b.records.failFirst.Store(true)
			if c.method == http.MethodPost {
				d.approve(b.people.questions()[0])
			}
			if code := send(); code != 503 {
				t.Errorf("a request whose entry cannot be written: got %d, want 503", code)
			}
			if n := len(up.log()); n != 1 {
				t.Errorf("upstream got %d requests, want 1", n)
			}
		})
	}
}

// A connection that is not decrypted has an entry before a byte passes.
func TestUninspectedConnectionIsRecordedFirst(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "pass.good.test")
	b := w.newSandbox(oneHostPolicy)
	pass := func() (string, error) {
		c, err := b.tls("pass.good.test", "pass.good.test", w.roots)
		if err != nil {
			return "", err
		}
		defer c.Close()
		return b.raw(c, "GET / HTTP/1.1\r\nHost: pass.good.test\r\nConnection: close\r\n\r\n"), nil
	}
	b.records.failFirst.Store(true)
	if got, err := pass(); err == nil {
		t.Errorf("a connection whose entry cannot be written returned %s", got)
	}
	if n := len(up.log()); n != 0 {
		t.Errorf("upstream got %d requests, want 0", n)
	}
	b.records.failFirst.Store(false)
	if got, err := pass(); err != nil || !strings.Contains(got, "hello from pass.good.test") {
		t.Errorf("control: a connection with an entry: got %s %v", got, err)
	}
}
