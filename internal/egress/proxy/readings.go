package proxy

import (
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
)

// reading is one way in which a server may interpret a request. Many servers let a header or the
// query override the method or the path of the request line. An attacker could use that to bypass a
// rule, so a request is allowed only if each reading is allowed.
type reading struct{ method, path string }

// Names of headers and query fields that override the method or the path, in the form of
// plainName.
var (
	methodHeaders = []string{"x-http-method-override", "x-http-method", "x-method-override", "x-method"}
	// $httpMethod and $httpHeaders are Google's, for browsers that cannot set headers.
	methodQueries = []string{"-method", "$httpmethod", "x-http-method-override", "x-http-method", "x-method-override"}
	pathHeaders   = []string{
		"x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-override-url", "x-forwarded-uri", "x-envoy-original-path",
		"x-original-path", "x-forwarded-path", "x-rewrite-path", "x-override-path", "x-request-uri",
	}
)

// headerQuery is the query field from which some servers read headers.
const headerQuery = "$httpheaders"

// maxReadings limits the readings of one request, because each needs its own decision.
const maxReadings = 16

// read adds all readings of the request. The first is that of the request line.
func (x *exchange) read() *refusal {
	methods, paths := []string{x.action.method}, []string{x.action.path}
	add := func(list *[]string, entry string) {
		if entry != "" && !slices.Contains(*list, entry) {
			*list = append(*list, entry)
		}
	}
	override := func(value string) {
		for m := range strings.SplitSeq(value, ",") {
			add(&methods, strings.ToUpper(strings.TrimSpace(m)))
		}
	}
	header := func(name, v string) *refusal {
		switch plain := plainName(name); {
		case slices.Contains(methodHeaders, plain):
			override(v)
		case slices.Contains(pathHeaders, plain):
			path, ok := x.otherPath(strings.TrimSpace(v))
			if !ok {
				return floor(http.StatusBadRequest, "path", policy.RulePath, "the header "+printable(name, 64)+" names a target that cannot be judged")
			}
			add(&paths, path)
		}
		return nil
	}
	for name, values := range x.r.Header {
		for _, v := range values {
			if stop := header(name, v); stop != nil {
				return stop
			}
		}
	}
	for part := range strings.FieldsFuncSeq(x.r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		if slices.Contains(methodQueries, plainName(unescaped(name))) {
			override(unescaped(value))
		}
	}
	for name, v := range queryHeaders(x.r.URL.RawQuery) {
		if stop := header(name, v); stop != nil {
			return stop
		}
	}
	if len(methods)*len(paths) > maxReadings {
		return floor(http.StatusBadRequest, "method", policy.RuleMethod, "the request names too many methods or paths")
	}
	x.action.readings = x.action.readings[:0]
	for _, p := range paths {
		for _, m := range methods {
			x.action.readings = append(x.action.readings, reading{m, p})
		}
	}
	return nil
}

// queryHeaders yields the headers in a query, for servers that read them there.
func queryHeaders(query string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for part := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
			name, value, _ := strings.Cut(part, "=")
			if plainName(unescaped(name)) != headerQuery {
				continue
			}
			for line := range strings.FieldsFuncSeq(unescaped(value), func(c rune) bool { return c == '\r' || c == '\n' }) {
				name, value, _ := strings.Cut(line, ":")
				if !yield(strings.TrimSpace(name), value) {
					return
				}
			}
		}
	}
}

// otherPath returns the escaped path of a URL in a header, without its query.
func (x *exchange) otherPath(value string) (string, bool) {
	u, err := url.Parse(value)
	if err != nil || u.Opaque != "" || u.User != nil || u.Host != "" && u.Hostname() != x.dest.host {
		return "", false
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	// The policy decides later whether an escaped slash is allowed.
	return path, names.Path(path, names.PathOptions{EncodedSlash: true}) == nil
}

// unescaped decodes the escapes of a part of a query, if they are valid.
func unescaped(part string) string {
	if plain, err := url.QueryUnescape(part); err == nil {
		return plain
	}
	return part
}
