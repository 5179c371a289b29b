package v1

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
)

// problem is an error answer. It keeps its cause for the log.
type problem struct {
	api.Problem
	cause error
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) Unwrap() error             { return p.cause }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders implements huma.HeadersError.
func (p *problem) GetHeaders() http.Header {
	if p.RetryAfterSeconds == 0 {
		return nil
	}
	return http.Header{"Retry-After": {strconv.Itoa(p.RetryAfterSeconds)}}
}

// MarshalJSON omits the cause.
func (p *problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.Problem) }

func problemOf(err error) *problem {
	kind := fault.KindOf(err)
	return &problem{cause: err, Problem: api.Problem{
		Kind: string(kind), Code: fault.CodeOf(err), Status: httpstatus.Of(err),
		Title:  strings.ReplaceAll(string(kind), "_", " "),
		Detail: fault.PublicText(err), Hint: fault.HintOf(err),
		RetryAfterSeconds: fault.RetryAfterSeconds(err),
	}}
}

func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.WriteHeader(p.Status)
	// A write error means that the client has left.
	_ = json.NewEncoder(w).Encode(p.Problem)
}

// kindOfStatus classifies the errors of the library huma.
func kindOfStatus(status int) (fault.Kind, string) {
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return fault.Exhausted, httpstatus.BodyTooLarge
	case status == http.StatusUnsupportedMediaType:
		return fault.Invalid, "unsupported_media_type"
	case status == http.StatusNotAcceptable:
		return fault.Invalid, "not_acceptable"
	case status == http.StatusRequestTimeout:
		return fault.Timeout, "request_timeout"
	case status < http.StatusInternalServerError:
		return fault.Invalid, "invalid_request"
	default:
		return fault.Internal, "internal"
	}
}

// init replaces huma's own error model, which is a package variable, so that validation errors look
// like other errors.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		kind, code := kindOfStatus(status)
		if kind == fault.Internal {
			return problemOf(fault.New(kind, code, msg))
		}
		return problemOf(fault.New(kind, code, describe(msg, errs)))
	}
}

// describe lists the position of each invalid value. It does not repeat the values, which may be
// secrets.
func describe(msg string, errs []error) string {
	var b strings.Builder
	b.WriteString(msg)
	sep := ": "
	for _, err := range errs {
		if err == nil {
			continue
		}
		text := err.Error()
		if d, ok := err.(huma.ErrorDetailer); ok {
			text = strings.TrimPrefix(d.ErrorDetail().Location+" "+d.ErrorDetail().Message, " ")
		}
		b.WriteString(sep + text)
		sep = "; "
	}
	return b.String()
}
