package git_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/git"
)

// A rule that opens a host for git applies only to a request that matches git's in every part.
func TestExactMatchesOnlyGitRequests(t *testing.T) {
	const fetch, push = "application/x-git-upload-pack-request", "application/x-git-receive-pack-request"
	kind := func(k ...string) http.Header {
		return http.Header{"Content-Type": k, "User-Agent": {"git/2"}, "Git-Protocol": {"version=2"}}
	}
	none := http.Header{"Accept": {"*/*"}}
	for _, c := range []struct {
		method, path, query string
		h                   http.Header
		want                git.Operation
		base                string
	}{
		{"GET", "/acme/pay.git/info/refs", "service=git-upload-pack", none, git.FetchRefs, "/acme/pay.git"},
		{"GET", "/acme/pay/info/refs", "service=git-receive-pack", none, git.PushRefs, "/acme/pay"},
		{"POST", "/acme/pay/git-upload-pack", "", kind(fetch), git.Fetch, "/acme/pay"},
		{"POST", "/acme/pay/git-receive-pack", "", kind(push), git.Push, "/acme/pay"},

		{"HEAD", "/acme/pay/info/refs", "service=git-upload-pack", none, git.None, ""},
		{"GET", "/acme/pay/info/refs", "", none, git.None, ""},
		{"GET", "/acme/pay/info/refs", "service=git-upload-pack&x=1", none, git.None, ""},
		{"GET", "/acme/pay/info/refs", "service=git-upload%2dpack", none, git.None, ""},
		{"GET", "/acme/pay/info/refs", "service=git-upload-pack", kind(fetch), git.None, ""},
		{"GET", "/info/refs", "service=git-upload-pack", none, git.None, ""},
		{"PUT", "/acme/pay/git-upload-pack", "", kind(fetch), git.None, ""},
		{"POST", "/acme/pay/git-upload-pack", "x=1", kind(fetch), git.None, ""},
		{"POST", "/acme/pay/git-upload-pack", "", kind(push), git.None, ""},
		{"POST", "/acme/pay/git-upload-pack", "", kind(fetch + "; x=1"), git.None, ""},
		{"POST", "/acme/pay/git-upload-pack", "", kind(fetch, "text/plain"), git.None, ""},
		{"POST", "/acme/pay/git-upload-pack", "", none, git.None, ""},
		{"POST", "/acme/pay/git-upload-pack/", "", kind(fetch), git.None, ""},
		{"POST", "/acme/pay/git%2dupload-pack", "", kind(fetch), git.None, ""},
		{"POST", "/acme%2Fpay/git-upload-pack", "", kind(fetch), git.None, ""},
		{"POST", "/acme/pay", "", kind(fetch), git.None, ""},
		{"POST", "/git-upload-pack", "", kind(fetch), git.None, ""},
	} {
		op, e := git.Exact(c.method, c.path, c.query, c.h)
		if op != c.want || e.Base != c.base {
			t.Errorf("Exact(%s %s?%s) = %q %+v, want %q %s", c.method, c.path, c.query, op, e, c.want, c.base)
		}
	}
	for _, name := range []string{"X-Http-Method-Override", "X_http_method", "X-Original-Url", "Cookie", "X-Amz-Target"} {
		h := kind(fetch)
		h[name] = []string{"x"}
		if op, _ := git.Exact("POST", "/acme/pay/git-upload-pack", "", h); op != git.None {
			t.Errorf("Exact with the header %s = %q, want none", name, op)
		}
	}
}

func TestAdvertisesChecksResponse(t *testing.T) {
	const upload = "application/x-git-upload-pack-advertisement"
	first := pkt("# service=git-upload-pack\n") + flush
	for name, c := range map[string]struct {
		status int
		types  []string
		body   string
		want   bool
	}{
		"version 0":              {200, []string{upload}, first + pkt(one+" refs/heads/a"), true},
		"version 2":              {200, []string{upload}, first + pkt("version 2\n"), true},
		"version 2 alone":        {200, []string{upload}, pkt("version 2\n") + flush, true},
		"an error":               {404, []string{upload}, first, false},
		"another type":           {200, []string{"text/html"}, first, false},
		"two types":              {200, []string{upload, upload}, first, false},
		"another service":        {200, []string{"application/x-git-receive-pack-advertisement"}, first, false},
		"another body":           {200, []string{upload}, "<html>", false},
		"another service's body": {200, []string{upload}, pkt("# service=git-receive-pack\n"), false},
		"empty body":             {200, []string{upload}, "", false},
		"truncated":              {200, []string{upload}, first[:20], false},
		"longer service name":    {200, []string{upload}, pkt("# service=git-upload-pack2\n"), false},
	} {
		again, got := git.Advertises("git-upload-pack", c.status, c.types, oneByte{strings.NewReader(c.body)})
		if got != c.want {
			t.Errorf("%s: Advertises = %v, want %v", name, got, c.want)
		}
		if b, err := io.ReadAll(again); string(b) != c.body || err != nil {
			t.Errorf("%s: the returned reader has %q, %v, want the complete body", name, b, err)
		}
	}
}

func TestIsFetchAcceptsOnlyFetchLines(t *testing.T) {
	two := pkt("command=fetch") + pkt("agent=git/2") + pkt("object-format=sha1") + "0001" + pkt("thin-pack") + pkt("ofs-delta") + pkt("want "+one+"\n") + pkt("done\n") + flush
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, two)
	_ = z.Close()
	for name, c := range map[string]struct {
		body, encoding string
		want           bool
	}{
		"version 0":            {pkt("want "+one+" multi_ack side-band-64k agent=git/2\n") + pkt("want "+one+"\n") + flush + pkt("have "+one+"\n") + pkt("done\n"), "", true},
		"shallow":              {pkt("want "+one+" shallow\n") + pkt("shallow "+one) + pkt("deepen 1") + flush + pkt("done"), "", true},
		"version 2":            {two, "", true},
		"a list of refs":       {pkt("command=ls-refs\n") + pkt("agent=git/2") + "0001" + pkt("peel\n") + pkt("symrefs\n") + pkt("ref-prefix refs/heads/\n") + flush, "", true},
		"compressed":           {packed.String(), "gzip", true},
		"authentication probe": {flush, "", true},

		"empty body":                  {"", "", false},
		"JSON":                        {`{"to": "evil"}`, "", false},
		"text after the end":          {two + `{"to": "evil"}`, "", false},
		"text after a flush":          {flush + "evil", "", false},
		"unknown line":                {pkt("command=fetch") + pkt("payment=evil") + flush, "", false},
		"first line is no command":    {pkt("agent=git/2") + flush, "", false},
		"want without an ID":          {pkt("want evil") + flush, "", false},
		"line break in a line":        {pkt("command=fetch") + pkt("agent=a\nb") + flush, "", false},
		"empty line":                  {pkt("command=fetch") + pkt("\n") + flush, "", false},
		"another encoding":            {two, "br", false},
		"plain text declared as gzip": {two, "gzip", false},
		"truncated":                   {two[:20], "", false},
		"response end packet":         {two + "0002", "", false},
		"push":                        {pkt(zero+" "+one+" refs/heads/a"+caps) + flush, "", false},
		"trailing compressed":         {packed.String() + "evil", "gzip", false},
		"longer than the limit":       {pkt("command=fetch") + strings.Repeat(pkt("agent="+strings.Repeat("a", 60000)), 1200), "", false},
	} {
		if got := git.IsFetch(strings.NewReader(c.body), c.encoding); got != c.want {
			t.Errorf("%s: IsFetch = %v, want %v", name, got, c.want)
		}
	}
}

// Every body that IsFetch accepts consists of complete packets, however it is read.
func FuzzIsFetch(f *testing.F) {
	f.Add([]byte(flush))
	f.Add([]byte(pkt("command=fetch") + "0001" + pkt("want "+one) + flush))
	f.Add([]byte(pkt("want "+one+" side-band") + flush + pkt("have "+one) + pkt("done\n")))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !git.IsFetch(bytes.NewReader(body), "") {
			return
		}
		for rest := string(body); rest != ""; {
			var n int
			if _, err := fmt.Sscanf(rest[:4], "%04x", &n); err != nil || n > len(rest) {
				t.Fatalf("%q was accepted, but its packet at %q is invalid", body, rest)
			}
			rest = rest[max(n, 4):]
		}
		if !git.IsFetch(oneByte{bytes.NewReader(body)}, "") {
			t.Fatal("the body is rejected when it is read byte by byte")
		}
	})
}
