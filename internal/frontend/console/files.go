package console

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// dist holds the files of the front end, if make built it before this package. A plain go build
// embeds only a README.
//
//go:embed all:dist
var dist embed.FS

func embeddedFiles() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("console: " + err.Error()) // the name is a constant
	}
	return sub
}

const index = "index.html"

// Built reports whether this program contains the console.
func Built() bool {
	_, err := fs.Stat(embeddedFiles(), index)
	return err == nil
}

// NotBuilt is the error text if the console is not embedded, with the fix.
const NotBuilt = "the web console is not embedded in this program: build it with make, which needs Node.js and npm"

// encodings are the stored forms of a file, the best first.
var encodings = []struct{ name, suffix string }{{"br", ".br"}, {"gzip", ".gz"}, {"", ""}}

// files are the files that may be served, by name, with their encodings. No other path is served.
type files struct {
	fs    fs.FS
	forms map[string][]string // encodings
}

func listFiles(from fs.FS) (files, error) {
	f := files{fs: from, forms: map[string][]string{}}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		for _, e := range encodings {
			plain, ok := strings.CutSuffix(name, e.suffix)
			if !ok {
				continue
			}
			if plain == index || strings.HasPrefix(plain, "assets/") {
				f.forms[plain] = append(f.forms[plain], e.name)
			}
			break
		}
		return nil
	})
	if err != nil {
		return files{}, fmt.Errorf("files of the console: %w", err)
	}
	return f, nil
}

// serveFile answers with a file of the front end, or with its page for every path of the page's
// router.
func (c *Console) serveFile(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		c.fail(w, r, fault.Newf(fault.Invalid, "method_not_allowed", "there is no %s %s", r.Method, r.URL.Path))
		return
	}
	if len(c.files.forms[index]) == 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, NotBuilt+"\n")
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", c.policy(r))
	name, asset := strings.CutPrefix(r.URL.Path, Path+"/assets/")
	if !asset {
		h.Set("Cache-Control", "no-store")
		c.send(w, r, index)
		return
	}
	name = "assets/" + name
	if len(c.files.forms[name]) == 0 {
		h.Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "there is no such file\n")
		return
	}
	// The file's name contains a hash of its content, so the file never changes.
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	c.send(w, r, name)
}

// send answers with a file in the best encoding that the browser accepts.
func (c *Console) send(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	h.Set("Content-Type", typeOf(name))
	h.Set("Vary", "Accept-Encoding")
	for _, e := range encodings {
		if !slices.Contains(c.files.forms[name], e.name) || e.name != "" && !accepts(r.Header.Get("Accept-Encoding"), e.name) {
			continue
		}
		f, err := c.files.fs.Open(name + e.suffix)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		defer f.Close()
		body, ok := f.(io.ReadSeeker)
		if !ok {
			c.fail(w, r, errors.New("a file of the console cannot be sought in"))
			return
		}
		if e.name != "" {
			h.Set("Content-Encoding", e.name)
		}
		http.ServeContent(w, r, "", time.Time{}, body)
		return
	}
	c.fail(w, r, fault.New(fault.Invalid, "not_acceptable", "the file is not available in an encoding that the browser accepts"))
}

// accepts reports whether a browser accepts an encoding.
func accepts(header, name string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, params, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), name) {
			continue
		}
		q, given := strings.CutPrefix(strings.TrimSpace(params), "q=")
		if !given {
			return strings.TrimSpace(params) == ""
		}
		weight, err := strconv.ParseFloat(q, 64)
		return err == nil && weight > 0 && weight <= 1
	}
	return false
}

// typeOf returns the media type of a file. It does not use the host's tables, which differ between
// hosts.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".json", ".map":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".ico":
		return "image/x-icon"
	case ".woff2":
		return "font/woff2"
	}
	return "application/octet-stream"
}

// policy returns the content security policy. It allows the console's own files, and in frames the
// ports of sandboxes, which have other origins.
func (c *Console) policy(r *http.Request) string {
	frames, domain := []string{"http://*.localhost:*"}, c.o.About.Domain
	below := func(domain string) []string { return []string{"http://*." + domain, "https://*." + domain} }
	host, _, err := net.SplitHostPort(domain)
	if domain != "" && (err != nil || host != "localhost") {
		frames = append(frames, below(domain)...)
	}
	frames = append(frames, "blob:")
	if _, port, named := net.SplitHostPort(r.Host); domain != "" && err != nil && named == nil {
		// A source without a port means the default port only, so the page's port is added.
		if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			frames = append(frames, below(domain+":"+strconv.FormatUint(n, 10))...)
		}
	}
	return "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; " +
		"connect-src 'self'; frame-src " + strings.Join(frames, " ") + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
