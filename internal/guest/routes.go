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

// unauthorized is the message of envd, with which E2B clients compare it.
const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

// routes returns the handler of all services, behind their authentication.
func (g *Guest) routes() http.Handler {
	options := codec.Options(maxMessage)
	authenticated := http.NewServeMux() // behind the access token
	authenticated.Handle(g.process.Handler(options...))
	authenticated.Handle(filesystempbconnect.NewFilesystemHandler(g.directory, options...))
	authenticated.HandleFunc("POST "+guestwire.StdinPath, g.process.Stdin)
	authenticated.HandleFunc("POST /files/compose", g.files.Compose)
	authenticated.HandleFunc("GET /copy", g.files.Copy)
	authenticated.HandleFunc("POST /copy", g.files.Copy)
	authenticated.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, g.Env()) })
	authenticated.HandleFunc("GET /metrics", g.serveMetrics)
	authenticated.HandleFunc("/", notFound)

	mux := http.NewServeMux() // public, or with authentication of its own
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /files", g.files.Download)
	mux.HandleFunc("POST /files", g.files.Upload)
	mux.HandleFunc(PathReady, g.control)
	mux.HandleFunc(PathUpdate, g.control)
	mux.HandleFunc(PathLookups, g.control)
	mux.HandleFunc(PathClaim, g.control)
	mux.HandleFunc(PathTree, g.control)
	mux.HandleFunc(PathPack, g.control)
	mux.HandleFunc(PathCensus, g.control)
	mux.HandleFunc(PathSignal, g.control)
	mux.Handle("/", g.requireToken(authenticated))
	return crossOrigin(mux)
}

// requireToken rejects requests without the access token.
func (g *Guest) requireToken(next http.Handler) http.Handler {
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
		if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
			h.Set("Access-Control-Allow-Headers", requested)
		}
		h.Set("Access-Control-Max-Age", "7200") // two hours, in seconds
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

// notFound answers 404.
func notFound(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusNotFound, map[string]any{"code": http.StatusNotFound, "message": "not found", "path": r.URL.Path})
}

// fail answers with an error.
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
