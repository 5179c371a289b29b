package proxy

import (
	"bytes"
	"html/template"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/egress"
)

// refusalPage is what a person sees in a browser in place of a page that was refused. It is inert:
// it has no script, and its policy forbids everything but its own style. The template escapes every
// text, because the program in the sandbox chooses the host and the path.
var refusalPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("refusal").Parse(refusalText)) })

const refusalText = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>body{font:16px/1.5 sans-serif;max-width:44em;margin:3em auto;padding:0 1em}code{overflow-wrap:anywhere}dt{font-weight:bold}dd{margin:0 0 .7em}</style>
</head>
<body>
<h1>{{.Title}}</h1>
<p><code>{{.Method}} {{.Target}}</code></p>
<dl>
{{- with .Reason}}<dt>Reason</dt><dd>{{.}}</dd>{{end}}
<dt>Rule</dt><dd><code>{{.Rule}}</code></dd>
{{- with .Approval}}<dt>Approval request</dt><dd><code>{{.ID}}</code> is {{.State}}{{with .Reason}}: {{.}}{{end}}</dd>{{end}}
</dl>
<h2>What to do</h2>
<ul>{{range .Steps}}<li>{{.}}</li>{{end}}</ul>
</body>
</html>
`

// refusalPolicy is the Content-Security-Policy of the page. The style may be inline, because it has
// no text of a program.
const refusalPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"

// page returns the refusal as a page, or nil if it cannot be written.
func (r *refusal) page(b body, method, target string) []byte {
	view := struct {
		Title, Method, Target, Rule, Reason string
		Approval                            *answered
		Steps                               []string
	}{
		Title: "Crannog blocked this page", Method: printable(method, longestField), Target: printable(target, longestField),
		Rule: r.decision.Rule, Reason: r.decision.Reason, Approval: b.Approval, Steps: b.NextSteps,
	}
	if r.decision.Effect == egress.Allow {
		view.Title = "Crannog could not load this page"
	}
	var out bytes.Buffer
	if err := refusalPage().Execute(&out, view); err != nil {
		return nil // the caller answers with JSON
	}
	return out.Bytes()
}

// writePage answers a browser's navigation with the page.
func (r *refusal) writePage(w http.ResponseWriter, page []byte, line string) {
	r.start(w, "text/html; charset=utf-8", len(page), line)
	h := w.Header()
	h.Set("Content-Security-Policy", refusalPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(r.status)
	_, _ = w.Write(page) // an error means that the client has disconnected
}

// start sets the headers of the answer to a refused request.
func (r *refusal) start(w http.ResponseWriter, kind string, length int, line string) {
	h := w.Header()
	shut := h.Get("Connection") == "close"
	clear(h)
	if shut {
		h.Set("Connection", "close")
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(length))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Crannog-Blocked", strings.TrimPrefix(line, "crannog: "))
	if r.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(r.retry)))
	}
}

// navigates reports whether a request is a browser's navigation, whose answer a person reads. Other
// programs get JSON, also those that accept every type.
func navigates(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "document":
	case "":
		// Chromium sends the header only to hosts with TLS and to the loopback.
	default:
		return false
	}
	return r.Header.Get("Upgrade") == "" && prefersHTML(r.Header.Values("Accept"))
}

// prefersHTML reports whether an Accept header names text/html with no smaller weight than the types
// of programs. A wildcard does not name it.
func prefersHTML(accept []string) bool {
	weights := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				weight = 0
			}
		}
		weights[kind] = max(weights[kind], weight)
	}
	page := weights["text/html"]
	return page > 0 && page >= weights["application/json"] && page >= weights["text/plain"]
}
