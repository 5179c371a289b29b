package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
)

const (
	// maxBody bounds a request's body.
	maxBody = 1 << 20
	// bodyTimeout stops a client that holds a connection by sending its body very slowly.
	bodyTimeout = 30 * time.Second
)

// ServeHTTP checks the key before it looks at the request, so that callers without a key cannot
// find out which routes and objects exist.
func (s *server) ServeHTTP(w http.ResponseWriter, original *http.Request) {
	r := original
	defer s.recoverTo(w, r)
	caller, err := s.auth(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var body []byte
	if !streams(r) {
		if body, err = readBody(w, r); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	r, cancel, err := boundByClient(r)
	if err != nil {
		s.fail(w, original, err)
		return
	}
	defer cancel()
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, caller))
	if !streams(r) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
	}
	s.mux.ServeHTTP(w, r)
}

// streams reports whether a handler reads the body while it arrives: the upload of files, which may
// be larger than memory and is not JSON. The handler limits the time of each piece.
func streams(r *http.Request) bool {
	return importsAdvisories(r) || r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, api.Prefix+"/volumes/") && strings.HasSuffix(r.URL.Path, "/files")
}

// recoverTo answers after a panic of a handler, so that other requests continue.
func (s *server) recoverTo(w http.ResponseWriter, r *http.Request) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		s.fail(w, r, fault.Newf(fault.Internal, "internal", "panic: %v\n%s", p, debug.Stack()))
	}
}

func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	logInternal(r.Context(), s.log, r.URL.Path, err)
	writeProblem(w, err)
}

// readBody reads the whole body within the limits of size and time.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTimeout)); err == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, strictJSON(body)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fault.Newf(fault.Exhausted, httpstatus.BodyTooLarge, "the body is larger than %d bytes", maxBody)
	}
	return nil, fault.Wrap(err, fault.Invalid, "body_unreadable", "the body cannot be read")
}

// strictJSON refuses JSON that parsers interpret differently.
func strictJSON(body []byte) error {
	if len(body) == 0 || json.Valid(body) {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_json", "the body is not one JSON value")
}

// logInternal is the only function that logs a request's error, with the cause that the answer
// omits.
func logInternal(ctx context.Context, log *slog.Logger, what string, err error) {
	if fault.KindOf(err) == fault.Internal {
		log.ErrorContext(ctx, "request failed", "request", what, "err", err)
	}
}
