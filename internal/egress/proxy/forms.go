package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// Rails, Laravel, Symfony and others take the method of a form's POST from its field _method.
// Without this check, a rule that allows POST would also allow a DELETE that another rule denies.

// The content types of bodies whose fields may name a method.
const (
	formType      = "application/x-www-form-urlencoded"
	multipartType = "multipart/form-data"
)

// maxField limits how much of a field's name or value is stored.
const maxField = 128

// isForm reports whether a server may parse a body of this content type as a form.
func (x *exchange) isForm(kind string) bool {
	return x.action.method == http.MethodPost && x.r.Body != nil && x.r.Body != http.NoBody &&
		slices.ContainsFunc(x.r.Header.Values("Content-Type"), func(t string) bool { return strings.Contains(strings.ToLower(t), kind) })
}

// methodMatters reports whether the decision about the request could differ with another method.
func (x *exchange) methodMatters(d egress.Decision) bool {
	if x.masked() {
		return true // a secret may be bound to the method
	}
	for _, r := range x.action.readings {
		for _, m := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete} {
			other, _ := x.gen.policy.Request(policy.Request{Host: x.dest.host, Port: x.dest.port, Method: m, Path: r.path, WebSocket: x.action.upgrade, TLS: x.dest.tls})
			if other.Effect.Stricter(d.Effect) {
				return true
			}
		}
	}
	return false
}

// readForm adds the readings that a form's fields cause, if they matter, and reports whether there
// is a new one. A form with files may be too long to be held, so readForm makes sure that it is
// inspected while it is forwarded.
func (x *exchange) readForm(d egress.Decision) (changed bool, stop *refusal) {
	if x.action.formRead || d.Effect == egress.Deny || !x.isForm(formType) && !x.isForm(multipartType) || !x.methodMatters(d) {
		return false, nil
	}
	x.action.formRead = true
	if x.isForm(multipartType) {
		x.r.Body = &fieldGuard{ReadCloser: x.r.Body}
	}
	if !x.isForm(formType) {
		return false, nil
	}
	if err := x.hold(); err != nil {
		return false, x.holdRefusal(err)
	}
	if x.action.body == nil {
		return false, nil
	}
	methods, err := formMethods(x.action.body.reader())
	if err != nil {
		return false, x.holdRefusal(err)
	}
	for _, r := range slices.Clone(x.action.readings) {
		for _, m := range methods {
			if also := (reading{m, r.path}); !slices.Contains(x.action.readings, also) {
				x.action.readings, changed = append(x.action.readings, also), true
			}
		}
	}
	if len(x.action.readings) > maxReadings {
		return false, floor(http.StatusBadRequest, "method", policy.RuleMethod, "the form names too many methods")
	}
	return changed, nil
}

// formMethods returns the methods in the fields of a form.
func formMethods(body io.Reader) (methods []string, err error) {
	r := bufio.NewReaderSize(body, 64<<10)
	var name, value []byte
	inValue, cut := false, false
	end := func() {
		if inValue && !cut && slices.Contains(methodQueries, plainName(unescaped(string(name)))) {
			for m := range strings.SplitSeq(unescaped(string(value)), ",") {
				methods = append(methods, strings.ToUpper(strings.TrimSpace(m)))
			}
		}
		name, value, inValue, cut = name[:0], value[:0], false, false
	}
	for {
		b, err := r.ReadByte()
		switch {
		case err == io.EOF:
			end()
			methods = slices.DeleteFunc(methods, func(m string) bool { return m == "" })
			return methods, nil
		case err != nil:
			return nil, err
		case b == '&' || b == ';':
			end()
		case b == '=' && !inValue:
			inValue = true
		case inValue && len(value) < maxField:
			value = append(value, b)
		case !inValue && len(name) < maxField:
			name = append(name, b)
		case !inValue:
			cut = true // the name is longer than any that names a method
		}
	}
}

// errFormMethod ends a form in which a method is found while it is forwarded.
var errFormMethod = errors.New("a field of the form names another method, which was not judged")

// fieldGuard forwards a form with files until one of its fields names a method. Then it returns an
// error, so that the server never receives the whole form.
type fieldGuard struct {
	io.ReadCloser
	last []byte // the last bytes that were forwarded
	err  error
}

// Read implements io.Reader.
func (g *fieldGuard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.ReadCloser.Read(p)
	seen := append(g.last, bytes.ReplaceAll(bytes.ToLower(p[:n]), []byte("_"), []byte("-"))...)
	for _, field := range methodQueries {
		for _, quote := range []string{`"`, "'", ""} {
			if bytes.Contains(seen, []byte("name="+quote+field)) {
				g.err = errFormMethod
				return 0, g.err
			}
		}
	}
	g.last = slices.Clone(seen[max(0, len(seen)-64):])
	return n, err
}
