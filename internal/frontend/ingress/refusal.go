package ingress

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
)

// refusal is an error answer of the proxy itself.
type refusal struct {
	status  int
	message string
	id      string // sandbox, or ""
	port    int    // or 0
	path    string // for reserved paths, or ""
}

func badRequest(message string) *refusal {
	return &refusal{status: http.StatusBadRequest, message: message}
}

func unauthorized(message string) *refusal {
	return &refusal{status: http.StatusUnauthorized, message: message}
}

// notFound is the same answer for a sandbox that never existed, has ended or belongs to another
// key. Clients interpret exactly this status as "not running".
func notFound(id string) *refusal {
	return &refusal{status: http.StatusBadGateway, id: id, message: "The sandbox was not found"}
}

func portClosed(t target) *refusal {
	return &refusal{status: http.StatusBadGateway, id: t.id, port: t.port,
		message: "The sandbox is running but port is not open"}
}

func reservedPath(path string) *refusal {
	return &refusal{status: http.StatusNotFound, path: path,
		message: "This endpoint is reserved for the server and is not reachable from outside"}
}

// body is the JSON form.
type body struct {
	SandboxID string `json:"sandboxId,omitempty"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Path      string `json:"path,omitempty"`
	Code      int    `json:"code"`
}

// write answers with JSON, or with a small page to a browser that navigates.
func (f *refusal) write(w http.ResponseWriter, r *http.Request) {
	limitUnreadBody(w)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// Pages of other origins may use programs inside, and may read this error.
	h.Set("Access-Control-Allow-Origin", "*")
	if navigates(r) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.WriteHeader(f.status)
		_ = page.Execute(w, f.view()) // an error means that the client left
		return
	}
	encoded, err := json.Marshal(body{f.id, f.message, f.port, f.path, f.status})
	if err != nil { // plain strings and numbers are always JSON
		panic(err)
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(append(encoded, '\n'))
}

// navigates reports whether a person's browser opens this as a page.
func navigates(r *http.Request) bool {
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
}

type view struct {
	Status  int
	Title   string
	Message string
	ID      string
	Port    int
}

func (f *refusal) view() view {
	return view{f.status, http.StatusText(f.status), f.message, f.id, f.port}
}

// page is the template of an error page. It escapes all values, because the ID comes from outside.
var page = template.Must(template.New("refusal").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Status}} {{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:32em;padding:0 1em}code{font-size:.95em}</style>
<h1>{{.Message}}</h1>
{{if .ID}}<p>Sandbox <code>{{.ID}}</code>{{if .Port}}, port <code>{{.Port}}</code>{{end}}</p>{{end}}
<p>{{.Status}} {{.Title}}</p>
</html>
`))
