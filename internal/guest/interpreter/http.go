package interpreter

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// maxBody is the longest request body. A request has only code; data is uploaded as files.
const maxBody = 16 << 20

// routes sets the handlers of all requests.
func (s *Server) routes() {
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, "OK") })
	s.mux.HandleFunc("POST /execute", s.handleExecute)
	s.mux.HandleFunc("GET /contexts", s.handleList)
	s.mux.HandleFunc("POST /contexts", s.handleCreate)
	s.mux.HandleFunc("POST /contexts/{id}/restart", s.handleRestart)
	s.mux.HandleFunc("DELETE /contexts/{id}", s.handleRemove)
}

// contextInfo is the protocol's description of a context.
type contextInfo struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func (x *session) info() contextInfo { return contextInfo{x.id, x.lang.name, x.directory()} }

// handleExecute runs code and streams its output.
func (s *Server) handleExecute(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(r) {
		writeError(w, fault.New(fault.Unauthenticated, "bad_access_token", "The header X-Access-Token is missing or wrong."))
		return
	}
	var body struct {
		Code      *string           `json:"code"`
		ContextID string            `json:"context_id"`
		Language  string            `json:"language"`
		Env       map[string]string `json:"env_vars"`
	}
	err := readJSON(w, r, &body)
	if err == nil && body.Code == nil {
		err = fault.New(fault.Invalid, "no_code", "The field code is missing.")
	}
	if err == nil {
		err = checkEnv(body.Env)
	}
	var sess *session
	if err == nil {
		sess, err = s.target(body.ContextID, body.Language)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	s.stream(w, r, sess, *body.Code, body.Env)
}

// stream executes code and streams the answer.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, sess *session, code string, env map[string]string) {
	out := newStream(w)
	err := sess.execute(r.Context(), code, env, out)
	switch {
	case err == nil:
	case !out.started():
		out.discard()
		s.report(sess, err)
		writeError(w, err)
	default:
		s.report(sess, err)
		out.fail(execError{Name: "ExecutionAborted", Value: fault.PublicText(err)})
		out.end()
	}
}

// report logs an error of the server, as opposed to an error of the client.
func (s *Server) report(sess *session, err error) {
	if fault.KindOf(err) == fault.Internal {
		s.opts.Log.Error("execution failed", "context", sess.id, "language", sess.lang.name, "err", err)
	}
}

// target returns the context in which code runs.
func (s *Server) target(id, language string) (*session, error) {
	if id != "" && language != "" {
		return nil, fault.New(fault.Invalid, "context_and_language", "Only one of context_id or language can be provided")
	}
	if id != "" {
		return s.find(id)
	}
	return s.byLanguage(language)
}

// authorized reports whether the request has the access token. It compares in constant time, so
// that a program inside the sandbox cannot find the token by measuring time.
func (s *Server) authorized(r *http.Request) bool {
	if s.opts.AccessToken == nil {
		return false
	}
	want := s.opts.AccessToken()
	got := r.Header.Get("X-Access-Token")
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func (s *Server) handleList(w http.ResponseWriter, r *http.Request) {
	infos := []contextInfo{}
	for _, sess := range s.list() {
		infos = append(infos, sess.info())
	}
	writeJSON(w, infos)
}

func (s *Server) handleCreate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := readJSON(w, r, &body); err != nil {
		writeError(w, err)
		return
	}
	sess, err := s.create(r.Context(), body.Language, body.Cwd)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, sess.info())
}

func (s *Server) handleRestart(w http.ResponseWriter, r *http.Request) {
	sess, err := s.find(r.PathValue("id"))
	if err == nil {
		err = sess.restart(r.Context())
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, nil)
}

func (s *Server) handleRemove(w http.ResponseWriter, r *http.Request) {
	sess, err := s.find(r.PathValue("id"))
	if err != nil {
		writeError(w, err)
		return
	}
	sess.close()
	writeJSON(w, nil)
}

// readJSON parses a body. An empty body sets no field; callers check required fields.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.Newf(fault.Exhausted, "body_too_large", "The request is longer than %d bytes.", tooLong.Limit)
	}
	if err != nil {
		return fault.Wrap(err, fault.Canceled, "canceled", "The request was not read to its end.")
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fault.Wrap(err, fault.Invalid, "bad_json", "The request is not the expected JSON object: "+err.Error())
	}
	return nil
}

// checkEnv rejects variables that an environment cannot contain. Otherwise they would fail during
// the execution.
func checkEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsAny(v, "\x00") {
			return fault.Newf(fault.Invalid, "bad_env", "The environment variable %q cannot be set.", truncate(k, 60))
		}
	}
	return nil
}
