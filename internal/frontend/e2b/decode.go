package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
)

// maxBody bounds a request's body. The largest parts of valid ones are environment variables and
// metadata.
const maxBody = 1 << 20

// decode parses a JSON object. Unknown fields are ignored, because clients send fields of later
// versions. Bodies may be chunked, so the length is not checked beforehand. An empty body is an
// error unless the caller allows it.
func decode(w http.ResponseWriter, r *http.Request, into any, emptyOK bool) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return fault.Newf(fault.Invalid, httpstatus.BodyTooLarge, "the request body is larger than %d bytes", tooLarge.Limit)
		}
		return fault.Wrap(err, fault.Invalid, "body_unreadable", "the request body is incomplete")
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		if emptyOK {
			return nil
		}
		return fault.New(fault.Invalid, "body_missing", "the request needs a JSON body")
	}
	if body[0] != '{' {
		return fault.New(fault.Invalid, "body_invalid", "the request body is not a JSON object")
	}
	// Unmarshal bounds the nesting depth, so deep nesting is an error and not a stack overflow, and
	// it refuses trailing data.
	if err := json.Unmarshal(body, into); err != nil {
		return invalidJSON(err)
	}
	return nil
}

func invalidJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fault.Newf(fault.Invalid, "field_invalid", "the field %q has the wrong type or is out of range", wrong.Field)
	}
	return fault.Wrap(err, fault.Invalid, "body_invalid", "the request body is not valid JSON")
}
