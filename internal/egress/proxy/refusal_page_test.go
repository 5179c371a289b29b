package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/crannog/crannog/internal/egress"
)

// browserAccept is what Chromium accepts when a person opens a page.
const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

// P92: a person who opens a refused page reads the rule in the browser. Programs get JSON.
func TestRefusedNavigationIsAPage(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", nil, "api.good.test")
	b := w.newSandbox("level: minimal\nnetwork:\n  hosts:\n    - {host: api.good.test, ports: [443], rules: [{do: allow, methods: [GET], paths: [/open]}]}\n")
	open := func(path string, h http.Header) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "https://api.good.test"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		res, err := b.client(false).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res, readAll(t, res)
	}
	document := http.Header{"Accept": {browserAccept}, "Sec-Fetch-Dest": {"document"}}
	res, text := open("/closed/%3Cscript%3E?q=<script>", document)
	policy := res.Header.Get("Content-Security-Policy")
	if res.StatusCode != http.StatusForbidden || res.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "sandbox") {
		t.Errorf("a navigation: got %s, %q, policy %q", res.Status, res.Header.Get("Content-Type"), policy)
	}
	blocked := res.Header.Get("X-Crannog-Blocked")
	_, rule, _ := strings.Cut(blocked, "rule=")
	rule, _, _ = strings.Cut(rule, " ")
	if rule == "" || !strings.Contains(text, rule) || !strings.Contains(text, "api.good.test/closed/") {
		t.Errorf("the page does not name the rule of %q:\n%s", blocked, text)
	}
	inert(t, text)
	for name, h := range map[string]http.Header{
		"a program":                   {"Accept": {"*/*"}},
		"no Accept":                   {},
		"a script of a page":          {"Accept": {browserAccept}, "Sec-Fetch-Dest": {"empty"}},
		"a frame":                     {"Accept": {browserAccept}, "Sec-Fetch-Dest": {"iframe"}},
		"JSON before HTML":            {"Accept": {"application/json, text/html;q=0.5"}},
		"HTML is refused":             {"Accept": {"text/html;q=0, */*"}},
		"text before HTML":            {"Accept": {"text/plain", "text/html;q=0.9"}},
		"a weight that is no number":  {"Accept": {"text/html;q=x"}},
		"an Accept that is no header": {"Accept": {";;;,,,text/html;;;q"}},
	} {
		res, text := open("/closed", h)
		if res.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(text, "{") || !strings.Contains(res.Header.Get("X-Crannog-Blocked"), rule) {
			t.Errorf("%s: got %s, %q, %q", name, res.Status, res.Header.Get("Content-Type"), text)
		}
	}
	// Without TLS, Chromium does not say what a request is for.
	if !navigates(httptest.NewRequest(http.MethodGet, "/", nil)) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", browserAccept)
		if !navigates(r) {
			t.Error("a navigation without Sec-Fetch-Dest is not recognised")
		}
		r.Header.Set("Upgrade", "websocket")
		if navigates(r) {
			t.Error("a WebSocket is taken for a navigation")
		}
	} else {
		t.Error("a request without Accept is taken for a navigation")
	}
	if res, _ := open("/open", document); res.StatusCode != http.StatusOK {
		t.Errorf("control: an allowed page: got %s", res.Status)
	}
}

// P92: texts that a program or a server chose stay text.
func TestRefusalPageIsInert(t *testing.T) {
	const hostile = `</code></style></title><script>alert(1)</script><img src=x onerror=alert(1)>"'><a href="javascript:alert(1)">{{.}}<meta http-equiv=refresh content=0>`
	r := &refusal{
		status: http.StatusForbidden, code: "denied",
		decision: egress.Decision{Effect: egress.Deny, Rule: hostile, Reason: hostile, Fix: hostile},
		answer:   &egress.ApprovalOutcome{Approval: hostile, State: hostile, Reason: hostile},
	}
	for _, answer := range []*egress.ApprovalOutcome{r.answer, nil} {
		r.answer = answer
		w := httptest.NewRecorder()
		r.write(w, true, hostile, "https://"+hostile+"/"+strings.Repeat(hostile, 1000))
		text := w.Body.String()
		inert(t, text)
		if got := textOf(t, text); strings.Count(got, "<script>alert(1)</script>") < 4 {
			t.Errorf("control: the page does not show the hostile text: %s", got)
		}
		if len(text) > 64<<10 {
			t.Errorf("the page has %d bytes", len(text))
		}
	}
}

// inert checks that a page has only the elements and attributes of the template.
func inert(t *testing.T, page string) {
	t.Helper()
	known := " html head meta title style body h1 h2 p code dl dt dd ul li "
	walk(t, page, func(n *html.Node) {
		if n.Type != html.ElementNode {
			return
		}
		if !strings.Contains(known, " "+n.Data+" ") {
			t.Errorf("the page has an element %s:\n%s", n.Data, page)
		}
		for _, a := range n.Attr {
			if a.Key != "lang" && a.Key != "charset" && a.Key != "name" && a.Key != "content" || a.Val == "0" {
				t.Errorf("the page has the attribute %s=%q of %s", a.Key, a.Val, n.Data)
			}
		}
	})
}

// textOf returns the text that a page shows.
func textOf(t *testing.T, page string) (text string) {
	t.Helper()
	walk(t, page, func(n *html.Node) {
		if n.Type == html.TextNode {
			text += n.Data
		}
	})
	return text
}

func walk(t *testing.T, page string, do func(*html.Node)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		do(n)
	}
}

func readAll(t *testing.T, res *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
