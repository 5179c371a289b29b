// Package files owns the upload and download of files over plain HTTP, including signed URLs.
package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/metadata"
	"github.com/crannog/crannog/internal/guest/signature"
)

// Config configures a Service.
type Config struct {
	Accounts identity.Accounts
	Actor    identity.Actor
	Log      *slog.Logger
	// DefaultDir is the directory for an empty path. Empty means the user's home.
	DefaultDir string
	// Token returns the current access token.
	Token func() string
}

// Service serves files. It is safe for concurrent use.
type Service struct{ config atomic.Pointer[Config] }

// New returns a service.
func New(cfg Config) *Service {
	s := &Service{}
	s.Renew(cfg)
	return s
}

// Renew replaces the configuration. Requests in progress continue with the old one.
func (s *Service) Renew(cfg Config) { s.config.Store(&cfg) }

func (s *Service) cfg() *Config { return s.config.Load() }

// TokenHeader carries the access token.
const TokenHeader = "X-Access-Token"

// Entry describes a file in answers. E2B clients compare whole entries, so further fields must not
// be added.
type Entry struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// httpError is an error with an HTTP status and a text for the caller.
type httpError struct {
	status int
	text   string
}

func (r *httpError) Error() string { return r.text }

// httpErrorf returns an httpError with a formatted text.
func httpErrorf(status int, format string, args ...any) error {
	return &httpError{status, fmt.Sprintf(format, args...)}
}

// target is the file and the user of a request.
type target struct {
	user identity.User
	path string // absolute
}

// target checks that the request may do op, and returns its file and user.
func (s *Service) target(r *http.Request, op signature.Op) (target, url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return target{}, nil, httpErrorf(http.StatusBadRequest, "malformed query")
	}
	if err := s.authorize(r, query, op); err != nil {
		return target{}, nil, err
	}
	user, err := s.account(query.Get("username"))
	if err != nil {
		return target{}, nil, err
	}
	path, err := user.Resolve(query.Get("path"), s.cfg().DefaultDir)
	if err != nil {
		return target{}, nil, httpErrorf(http.StatusBadRequest, "%v", err)
	}
	return target{user, path}, query, nil
}

// account returns a user by name, or the default user for "".
func (s *Service) account(name string) (identity.User, error) {
	user, err := s.cfg().Accounts.ByName(name)
	if unknown, ok := errors.AsType[*identity.UnknownError](err); ok {
		return user, httpErrorf(http.StatusUnauthorized, "%v", unknown)
	}
	return user, err
}

// authorize accepts the access token or a signature made with it. A wrong token is an error even if
// the signature is valid.
func (s *Service) authorize(r *http.Request, query url.Values, op signature.Op) error {
	token := s.cfg().Token()
	if given := r.Header.Get(TokenHeader); given != "" {
		if !equal(given, token) {
			return httpErrorf(http.StatusUnauthorized, "access token present in header but does not match")
		}
		return nil
	}
	if err := checkSignature(query, op, token, time.Now()); err != nil {
		return httpErrorf(http.StatusUnauthorized, "%v", err)
	}
	return nil
}

// dropTimeout limits how long the guest reads a body that it will discard.
const dropTimeout = 5 * time.Second

// BoundRest limits how long the server reads the rest of a rejected request. The server reads the
// rest so that the connection can be reused. Without a limit, a client without a token could hold
// the connection for ever by sending nothing.
func BoundRest(w http.ResponseWriter) {
	// Writers without deadlines have no connection that could be held open.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dropTimeout))
}

// fail answers with an error in JSON.
func (s *Service) fail(w http.ResponseWriter, path string, err error) {
	BoundRest(w)
	status, text := http.StatusInternalServerError, "internal error"
	requestErr, ok := errors.AsType[*httpError](err)
	switch {
	case ok:
		status, text = requestErr.status, requestErr.text
	case errors.Is(err, fs.ErrNotExist):
		status, text = http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		status, text = http.StatusForbidden, fmt.Sprintf("path '%s': permission denied", path)
	case errors.Is(err, syscall.EISDIR):
		status, text = http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EINVAL):
		status, text = http.StatusBadRequest, err.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status, text = http.StatusInsufficientStorage, "not enough disk space"
	case errors.Is(err, metadata.ErrUnsupported):
		text = err.Error()
	default:
		s.cfg().Log.Error("file request failed", "err", err)
	}
	answer(w, status, map[string]any{"code": status, "message": text})
}

// answer answers with a body in JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Encoding fails only if the client has disconnected.
	_ = json.NewEncoder(w).Encode(body)
}
