package guest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/guest/codec"
	"github.com/crannog/crannog/internal/guest/files"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// maxMessage limits one message of a service, which is decoded in memory.
const maxMessage = 64 << 20

// unauthorized is the text that clients compare.
const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

// routes returns the handler of all services, behind their authentication.
func (g *Guest) routes() http.Handler {
	options := codec.Options(maxMessage)
	closed := http.NewServeMux() // needs the access token
	closed.Handle(g.process.Handler(options...))
	closed.Handle(filesystempbconnect.NewFilesystemHandler(g.directory, options...))
	closed.HandleFunc("POST "+guestwire.StdinPath, g.process.Stdin)
	closed.HandleFunc("POST /files/compose", g.files.Compose)
	closed.HandleFunc("GET /copy", g.files.Copy)
	closed.HandleFunc("POST /copy", g.files.Copy)
	closed.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, g.Env()) })
	closed.HandleFunc("GET /metrics", g.serveMetrics)
	closed.HandleFunc("/", notFound)

	open := http.NewServeMux() // makes its own checks, or is public
	open.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	open.HandleFunc("GET /files", g.files.Download)
	open.HandleFunc("POST /files", g.files.Upload)
	open.HandleFunc(PathReady, g.control)
	open.HandleFunc(PathUpdate, g.control)
	open.HandleFunc(PathLookups, g.control)
	open.HandleFunc(PathClaim, g.control)
	open.HandleFunc(PathTree, g.control)
	open.HandleFunc(PathPack, g.control)
	open.HandleFunc(PathCensus, g.control)
	open.HandleFunc(PathSignal, g.control)
	open.Handle("/", g.guarded(closed))
	return crossOrigin(open)
}

// guarded requires the access token.
func (g *Guest) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sameToken(r.Header.Get(files.TokenHeader), g.AccessToken()) {
			files.BoundRest(w)
			fail(w, http.StatusUnauthorized, unauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossOrigin allows requests from pages of any origin. The access token protects the sandbox, and
// browsers do not add it by themselves.
func crossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, controlPrefix) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "*")
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE")
		// The wildcard does not include Authorization, so the requested headers are listed.
		if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
			h.Set("Access-Control-Allow-Headers", asked)
		}
		h.Set("Access-Control-Max-Age", "7200")
		w.WriteHeader(http.StatusNoContent)
	})
}

const controlPrefix = "/_crannog/"

func (g *Guest) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	sample, err := g.metrics.Sample()
	if err != nil {
		g.log.Error("metrics failed", "err", err)
		fail(w, http.StatusInternalServerError, "metrics are not available")
		return
	}
	writeJSON(w, http.StatusOK, sample)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusNotFound, map[string]any{"code": http.StatusNotFound, "message": "not found", "path": r.URL.Path})
}

func fail(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]any{"code": status, "message": text})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Encoding fails only if the client has disconnected.
	_ = json.NewEncoder(w).Encode(body)
}

// sameToken compares in constant time, so that timing does not reveal a correct prefix. An empty
// token matches nothing.
func sameToken(given, want string) bool {
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return want != "" && subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
